// all_gather through shared scratch, for memory that only its own rank maps.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks.
// Cost per rank: one copy in, N copies out; one barrier per chunk.
// Two halves of scratch take turns, so a chunk is read while the next one is written.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const std::int64_t longest = parts.longest();
  const std::int64_t chunks = chunks_in(longest, shape.chunk_count);
  plan.scratch_count(chunks < 2 ? longest : 2 * shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    // A shorter part has fewer chunks; its others are empty.
    const auto piece = [&](int rank) {
      return chunk_of({0, parts[rank].count}, shape.chunk_count, chunk);
    };
    const auto half = [&](int rank) {
      return Range{(chunk % 2) * shape.chunk_count, piece(rank).count};
    };
    plan.copy(plan.scratch(half(shape.rank)), plan.input(piece(shape.rank)));
    plan.barrier();
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Range out{parts[rank].begin + piece(rank).begin, piece(rank).count};
      plan.copy(plan.data(out),
                rank == shape.rank ? plan.input(piece(rank)) : plan.scratch(rank, half(rank)));
    }
  }
  return plan.take();
}

}  // namespace lockstep
