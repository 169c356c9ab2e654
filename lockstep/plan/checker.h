// Proof by execution: runs the plans of all ranks on symbols instead of bytes.
//
// Checked, for three operations in a row on the same memory (so that what one leaves behind cannot
// harm those that follow; shared scratch takes turns, so the third is the first on the same):
//  - every output element is what the operation says: for reductions, each rank's contribution
//    exactly once, in the canonical order (any order, if the algorithm says so), finished once;
//  - every access stays inside its buffer, and scratch and partials within what the plan asks for;
//  - values and unfinished sums are never taken for each other;
//  - nothing is read before it is there, written while a peer may still read it, or read and
//    written by two ranks of a host between the same two barriers; the user may change the data
//    when the plan ends;
//  - every send has its receive, of the same length, and no rank waits for ever, even if a send
//    only leaves when its peer takes it;
//  - a barrier ends nowhere before it began everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep {

// Above so many ranks the proof leaves out what needs a clock per rank: overwriting of what is
// still under way. One operation is run instead of three.
inline constexpr int kFullProofRanksMax = 256;

// The first thing that is wrong with `algorithm` for `shape` (whose rank is ignored); empty:
// proved. Time grows with the steps and the elements they touch; memory with the buffers, the
// messages under way, the plans (packed_plan.h) and ranks × ranks.
std::optional<std::string> check_plan(const Algorithm& algorithm, const Shape& shape);

// The same where ranks differ in more than their number.
std::optional<std::string> check_plan(const Algorithm& algorithm, const std::vector<Shape>& shapes);

// The same for given plans and shapes, one per rank.
std::optional<std::string> check_plans(const std::vector<Plan>& plans,
                                       const std::vector<Shape>& shapes, Order order);

// `shape` for every rank.
std::vector<Shape> shapes_of(const Shape& shape);

}  // namespace lockstep
