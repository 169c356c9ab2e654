// all_reduce of few bytes through shared scratch: everybody reads everything.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks. Order: canonical.
// Cost per rank: copies n in, reads n from every rank; one barrier per chunk, the least possible.
// Chosen for few bytes only (Shape::few_count).
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

bool few_elements(const Shape& shape) {
  return shape.count <= shape.few_count;
}

Plan all_reduce_flat(const Shape& shape) {
  PlanBuilder plan("flat", {.shared_scratch = true}, shape);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  plan.scratch_count(chunks < 2 ? shape.count : 2 * shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const Range half{chunk % 2 * shape.chunk_count, range.count};
    plan.copy(plan.scratch(half), plan.data(range));
    plan.barrier();
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(rank == shape.rank ? plan.data(range) : plan.scratch(rank, half));
    }
    plan.reduce({plan.data(range)}, sources);
  }
  return plan.take();
}

}  // namespace lockstep
