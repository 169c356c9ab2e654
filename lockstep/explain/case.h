// Case: one operation among ranks that sit on hosts, of which somebody wants to know.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/explain/tally.h"
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

struct Case {
  Operation operation = Operation::all_reduce;
  int ranks = 1;
  int root = 0;
  std::int64_t count = 0;  // Shape::count: of one part where there are parts
  DType dtype = DType::f32;
  std::vector<int> hosts = {};  // by rank; empty: all on one

  ElementSize size() const;
};

// Whether buffers hold a part for each rank, of which Case::count counts one.
bool has_parts(Operation operation);

// `hosts` blocks of ranks, as equal as can be.
std::vector<int> blocks_of_ranks(int ranks, int hosts);

// Where ranks are if nobody says so: on one host for what shares memory, on two for what also
// sends messages, else each on its own.
std::vector<int> usual_hosts(int ranks, const Needs& needs);

// The shape that the engine would make a plan of `algorithm` for. Refers to `of.hosts`.
Shape shape_of(const Case& of, const Algorithm& algorithm, int rank);

// The shape that the engine chooses an algorithm for.
Shape shape_to_choose(const Case& of);

// Throws Error(invalid_argument), saying why, if `algorithm` makes no plans for it, or plans too
// long to look at.
void require_plans(const Case& of, const Algorithm& algorithm);

}  // namespace lockstep
