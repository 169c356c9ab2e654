// broadcast in shared memory: every rank carries one slice of root's data to all others.
//
// Restrictions: every rank's data is mapped by all ranks of the one host.
// Cost per rank: reads n/N, writes it N-1 times; two barriers.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan broadcast_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_data = true}, shape);
  const Range mine = slice_of({0, shape.count}, shape.ranks, shape.rank, shape.align_count);
  plan.barrier();
  for (int d = 0; d < shape.ranks; ++d) {
    const int rank = (shape.rank + d) % shape.ranks;
    if (rank != shape.root) plan.copy(plan.data(rank, mine), plan.data(shape.root, mine));
  }
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
