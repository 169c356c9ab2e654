// all_to_all in shared memory: every rank writes its parts into the others' data.
//
// Restrictions: every rank's data is mapped by all ranks of the one host; parts of one size.
// Cost per rank: reads n, writes n; two barriers.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_to_all_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_data = true}, shape);
  const auto part = [&](int rank) { return Range{rank * shape.count, shape.count}; };
  plan.barrier();
  for (int d = 0; d < shape.ranks; ++d) {
    const int rank = (shape.rank + d) % shape.ranks;
    plan.copy(plan.data(rank, part(shape.rank)), plan.input(part(rank)));
  }
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
