// all_gather in shared memory: every rank writes its part into everybody's data.
//
// Restrictions: every rank's data is mapped by all ranks of the one host.
// Cost per rank: reads its part, writes it N times; two barriers.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_data = true}, shape);
  const Range mine = Parts(shape.ranks, shape.count, shape.counts)[shape.rank];
  plan.barrier();
  for (int d = 0; d < shape.ranks; ++d) {
    const int rank = (shape.rank + d) % shape.ranks;
    plan.copy(plan.data(rank, mine), plan.input({0, mine.count}));
  }
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
