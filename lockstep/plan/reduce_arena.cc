// reduce in shared memory: every rank reduces one slice into root's data.
//
// Restrictions: every rank's data is mapped by all ranks of the one host. Order: canonical.
// Cost per rank: reads n, writes n/N; two barriers.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan reduce_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_data = true}, shape);
  const Range mine = slice_of({0, shape.count}, shape.ranks, shape.rank, shape.align_count);
  std::vector<Location> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) sources.push_back(plan.data(rank, mine));
  plan.barrier();
  plan.reduce({plan.data(shape.root, mine)}, sources);
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
