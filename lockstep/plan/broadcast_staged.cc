// broadcast through the root's shared scratch.
//
// Restrictions: scratch of 2 chunks is mapped by all ranks.
// Cost: the root copies n bytes in, the others copy n out at the same time; one barrier per chunk.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan broadcast_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  plan.scratch_count(chunks < 2 ? shape.count : 2 * shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const Range half{(chunk % 2) * shape.chunk_count, range.count};
    if (shape.rank == shape.root) plan.copy(plan.scratch(half), plan.data(range));
    plan.barrier();
    if (shape.rank != shape.root) plan.copy(plan.data(range), plan.scratch(shape.root, half));
  }
  return plan.take();
}

}  // namespace lockstep
