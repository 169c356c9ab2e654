// reduce through shared scratch, for memory that only its own rank maps.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks. Order: canonical.
// Cost per rank: one copy in, one reduction of n/N; root copies n out; two barriers per chunk.
// Slices are reduced in place, in the scratch of the rank that reduces them.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan reduce_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  plan.scratch_count(2 * shape.chunk_count);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const std::int64_t half = (chunk % 2) * shape.chunk_count;
    const auto slice = [&](int rank) {
      return slice_of({half, range.count}, shape.ranks, rank, shape.align_count);
    };
    plan.copy(plan.scratch({half, range.count}), plan.data(range));
    plan.barrier();
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(plan.scratch(rank, slice(shape.rank)));
    }
    plan.reduce({plan.scratch(slice(shape.rank))}, sources);
    plan.barrier();
    if (shape.rank != shape.root) continue;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Range from = slice(rank);
      plan.copy(plan.data({range.begin + from.begin - half, from.count}), plan.scratch(rank, from));
    }
  }
  if (chunks == 0) plan.barrier();
  return plan.take();
}

}  // namespace lockstep
