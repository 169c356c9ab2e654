// reduce_scatter in shared memory: every rank reads its part of everybody's input.
//
// Restrictions: every rank's input is mapped by all ranks of the one host. Order: canonical.
// Cost per rank, n bytes of input: reads n, writes its part; two barriers.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan reduce_scatter_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_input = true}, shape);
  const Range mine = Parts(shape.ranks, shape.count, shape.counts)[shape.rank];
  std::vector<Location> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) sources.push_back(plan.input(rank, mine));
  plan.barrier();
  plan.reduce({plan.data({0, mine.count})}, sources);
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
