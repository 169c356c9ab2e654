// Ranks as threads: a whole job inside this process, without a launcher.
//
// Each rank is a thread with a real group, and the same code runs on it as in a rank that is a
// process. docs/mirrored.md says what threads of one process share; lockstep/torch/mirrored.h is
// this for LibTorch programs.
#pragma once

#include <functional>

#include "lockstep/group/group.h"

namespace lockstep {

// `compute_threads`: how many threads this rank may compute with: OMP_NUM_THREADS where it is set,
// else the rank's share of the usable cores, at least 1.
using RankBody = std::function<void(Group& group, int compute_threads)>;

// Runs `body` on `ranks` ranks at once and returns when all have ended. Each rank's thread, and
// what it starts, stays on its own share of the cores this process may use. How the group runs
// (timeouts, transport, records …) is read from the environment, as init() does.
//
// Errors: an exception that leaves `body` aborts the group, so that it ends every rank, and comes
// out of here: an Error with "rank r of n: " before its text, any other as it was thrown, after a
// line on standard error that names the rank. When several ranks fail, it is the first that did so
// by itself, not for the loss of another. Throws Error(invalid_argument) for fewer than one rank
// and in a process that a launcher has started (RANK, WORLD_SIZE …), Error(unsupported) while
// another call runs in this process (also from within a rank: calls do not nest), Error(io) when
// the threads cannot be started.
void run_rank_threads(int ranks, const RankBody& body);

}  // namespace lockstep
