// Proof by execution: runs the plans of all ranks on symbols instead of bytes.
//
// Checked, for two operations in a row on the same scratch (so that what one leaves behind cannot
// harm the next):
//  - every output element is the reduction of that element of every rank, exactly once, in rank
//  order
//    (broadcast: root's element; all_gather: the owner's);
//  - every access stays inside its buffer, scratch within scratch_count;
//  - nothing is read before it is there, written while a peer may still read it, or read and
//  written
//    by two ranks between the same two barriers; the user may change the data when the plan ends;
//  - every send has its receive, of the same length, and no rank waits for ever;
//  - a barrier ends nowhere before it began everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/plan/plan.h"

namespace lockstep {

// The first thing that is wrong with `algorithm` for `shape` (whose rank is ignored); empty:
// proved. Time and memory grow with ranks × (ranks + count).
std::optional<std::string> check_plan(const Algorithm& algorithm, const Shape& shape);

// The same for given plans, one per rank.
std::optional<std::string> check_plans(const std::vector<Plan>& plans, const Shape& shape);

}  // namespace lockstep
