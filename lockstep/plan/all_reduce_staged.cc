// all_reduce of memory that only its own rank maps, through shared scratch.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks. Order: canonical.
// Cost per rank: a copy in and a copy out of n(N-1)/N, a reduction of n/N; a barrier per chunk and
// one. The own slice is read where it is; only what others reduce is copied in.
// Chunks take turns with two halves of the scratch, in which each slice has its place: so the place
// of a result is written by its owner alone, two barriers after the last reader of the one before.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_reduce_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const Range whole{0, shape.count};
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto slice = [&](std::int64_t chunk, int rank) {
    return slice_of(chunk_of(whole, shape.chunk_count, chunk), shape.ranks, rank,
                    shape.align_count);
  };
  // Slice 0 of a whole chunk is the longest there is.
  const std::int64_t place_count = chunks == 0 ? 0 : slice(0, 0).count;
  plan.scratch_count(2 * shape.ranks * place_count);
  // On `owner`: where the slice of `rank` stands.
  const auto place = [&](std::int64_t chunk, int owner, int rank) {
    const std::int64_t index = chunk % 2 * shape.ranks + rank;
    return plan.scratch(owner, {index * place_count, slice(chunk, rank).count});
  };
  const auto peer_at = [&](int distance) { return (shape.rank + distance) % shape.ranks; };
  const auto copy_in = [&](std::int64_t chunk) {
    for (int d = 1; d < shape.ranks; ++d) {
      plan.copy(place(chunk, shape.rank, peer_at(d)), plan.data(slice(chunk, peer_at(d))));
    }
  };
  if (chunks > 0) copy_in(0);
  plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(rank == shape.rank ? plan.data(slice(chunk, rank))
                                           : place(chunk, rank, shape.rank));
    }
    plan.reduce({plan.data(slice(chunk, shape.rank)), place(chunk, shape.rank, shape.rank)},
                sources);
    if (chunk + 1 < chunks) copy_in(chunk + 1);
    plan.barrier();
    for (int d = 1; d < shape.ranks; ++d) {
      plan.copy(plan.data(slice(chunk, peer_at(d))), place(chunk, peer_at(d), peer_at(d)));
    }
  }
  return plan.take();
}

}  // namespace lockstep
