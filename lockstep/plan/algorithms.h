// The algorithms there are, one file each, and the table that chooses among them.
// A new algorithm is a file, its declaration here, and a row in algorithms.cc.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/plan/plan.h"

namespace lockstep {

Plan all_reduce_arena(const Shape& shape);
Plan all_reduce_staged(const Shape& shape);
Plan all_reduce_direct(const Shape& shape);
Plan broadcast_staged(const Shape& shape);
Plan broadcast_tree(const Shape& shape);
Plan all_gather_staged(const Shape& shape);
Plan all_gather_direct(const Shape& shape);
Plan barrier_arena(const Shape& shape);
Plan barrier_dissemination(const Shape& shape);

// Every algorithm, best first within an operation.
std::span<const Algorithm> algorithms();

// What a group's links can do for one operation.
struct Reach {
  bool shared_data = false;     // this operation's data lies in memory that all ranks map
  bool shared_scratch = false;  // all ranks are on one host and share scratch
};

// The first algorithm of `operation` that `reach` allows. There always is one: messages need
// nothing.
const Algorithm& choose(Operation operation, const Reach& reach);

}  // namespace lockstep
