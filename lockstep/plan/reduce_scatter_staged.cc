// reduce_scatter through shared scratch, for memory that only its own rank maps.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks. Order: canonical.
// Cost per rank, n bytes of input: copies n(N-1)/N in, reads as much, writes its part; a barrier
// per chunk. A chunk of scratch holds an equal piece of every part. Two halves take turns.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan reduce_scatter_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const std::int64_t piece_count = std::max<std::int64_t>(1, shape.chunk_count / shape.ranks);
  plan.scratch_count(2 * shape.ranks * piece_count);
  const std::int64_t chunks = chunks_in(parts.longest(), piece_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    // Within a part; a shorter part has fewer chunks.
    const auto piece = [&](int part) {
      return chunk_of({0, parts[part].count}, piece_count, chunk);
    };
    const auto input = [&](int part) {
      return plan.input({parts[part].begin + piece(part).begin, piece(part).count});
    };
    const auto staged = [&](int part, int rank) {
      const std::int64_t slot = (chunk % 2) * shape.ranks + part;
      return plan.scratch(rank, {slot * piece_count, piece(part).count});
    };
    for (int part = 0; part < shape.ranks; ++part) {
      if (part != shape.rank) plan.copy(staged(part, shape.rank), input(part));
    }
    plan.barrier();
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(rank == shape.rank ? input(rank) : staged(shape.rank, rank));
    }
    plan.reduce({plan.data(piece(shape.rank))}, sources);
  }
  return plan.take();
}

}  // namespace lockstep
