// all_reduce of few bytes through shared scratch: everybody reads everything.
//
// Restrictions: one host; Shape::few_count elements at most. Order: canonical.
// Cost per rank: copies n in, reads n from every rank; one barrier, the least possible.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

bool few_elements(const Shape& shape) {
  return shape.count <= shape.few_count;
}

Plan all_reduce_flat(const Shape& shape) {
  PlanBuilder plan("flat", {.shared_scratch = true}, shape);
  const Range whole{0, shape.count};
  plan.scratch_count(shape.count);
  plan.copy(plan.scratch(whole), plan.data(whole));
  plan.barrier();
  std::vector<Location> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    sources.push_back(rank == shape.rank ? plan.data(whole) : plan.scratch(rank, whole));
  }
  plan.reduce({plan.data(whole)}, sources);
  return plan.take();
}

}  // namespace lockstep
