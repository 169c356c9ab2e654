// all_reduce of memory that only its own rank maps, through shared scratch.
//
// Restrictions: scratch of 2 chunks is mapped by all ranks. Order: canonical.
// Cost per rank: one copy in, one reduction of n/N, one copy out; two barriers per chunk.
// Chunks alternate between two halves of the scratch. A half is written again two chunks later; the
// barriers of the chunk between them keep a fast rank from overwriting what a slow one still reads.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_reduce_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  plan.scratch_count(2 * shape.chunk_count);
  const Range whole{0, shape.count};
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto half = [&](std::int64_t chunk, Range range) {
    const Range of = chunk_of(whole, shape.chunk_count, chunk);
    return Range{(chunk % 2) * shape.chunk_count + range.begin - of.begin, range.count};
  };
  const auto copy_in = [&](std::int64_t chunk) {
    const Range range = chunk_of(whole, shape.chunk_count, chunk);
    plan.copy(plan.scratch(half(chunk, range)), plan.data(range));
  };
  if (chunks == 0) plan.barrier();
  if (chunks > 0) copy_in(0);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of(whole, shape.chunk_count, chunk);
    const auto slice = [&](int rank) {
      return slice_of(range, shape.ranks, rank, shape.align_count);
    };
    // The last chunk came in before the barrier above, and nothing follows that could overwrite.
    if (chunk == 0 || chunk + 1 < chunks) plan.barrier();
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(plan.scratch(rank, half(chunk, slice(shape.rank))));
    }
    plan.reduce({plan.data(slice(shape.rank)), plan.scratch(half(chunk, slice(shape.rank)))},
                sources);
    if (chunk + 1 < chunks) copy_in(chunk + 1);
    plan.barrier();
    for (int rank = 0; rank < shape.ranks; ++rank) {
      if (rank == shape.rank) continue;
      plan.copy(plan.data(slice(rank)), plan.scratch(rank, half(chunk, slice(rank))));
    }
  }
  // Until here a slow rank may read the last results; the next operation may write the scratch.
  if (chunks > 0) plan.barrier();
  return plan.take();
}

}  // namespace lockstep
