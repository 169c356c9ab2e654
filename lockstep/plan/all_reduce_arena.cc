// all_reduce in place in shared memory.
//
// Restrictions: every rank's data is mapped by all ranks of the one host. Order: canonical.
// Cost per rank, N ranks, n bytes: reads n, writes n, two barriers; nothing is copied in or out.
// Rank r owns slice r: it reads that slice from everybody, reduces, and writes it to everybody.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_reduce_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_data = true}, shape);
  const Range mine = slice_of({0, shape.count}, shape.ranks, shape.rank, shape.align_count);
  std::vector<Location> destinations = {plan.data(mine)};
  std::vector<Location> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    sources.push_back(plan.data(rank, mine));
    if (rank != shape.rank) destinations.push_back(plan.data(rank, mine));
  }
  plan.barrier();
  plan.reduce(destinations, sources);
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
