// all_gather through shared scratch.
//
// Restrictions: scratch of 2 chunks is mapped by all ranks.
// Cost per rank: one copy in of n, copies out of N·n; one barrier per chunk.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_staged(const Shape& shape) {
  PlanBuilder plan("staged", Needs::shared_scratch, shape);
  plan.scratch_count(2 * shape.chunk_count);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const Range half{(chunk % 2) * shape.chunk_count, range.count};
    plan.copy(plan.scratch(half), plan.input(range));
    plan.barrier();
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Range out{rank * shape.count + range.begin, range.count};
      plan.copy(plan.data(out), rank == shape.rank ? plan.input(range) : plan.scratch(rank, half));
    }
  }
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
