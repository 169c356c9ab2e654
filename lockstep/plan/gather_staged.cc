// gather and scatter through root's and the others' shared scratch, for memory that only its own
// rank maps.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks.
// Cost: every byte is copied in once and out once; a barrier per chunk. Two halves of scratch take
// turns, so a chunk is read while the next one is written.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan gather_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const std::int64_t longest = parts.longest();
  const std::int64_t chunks = chunks_in(longest, shape.chunk_count);
  plan.scratch_count(chunks < 2 ? longest : 2 * shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const auto piece = [&](int rank) {
      return chunk_of({0, parts[rank].count}, shape.chunk_count, chunk);
    };
    const auto half = [&](int rank) {
      return plan.scratch(rank, {chunk % 2 * shape.chunk_count, piece(rank).count});
    };
    if (shape.rank != shape.root) plan.copy(half(shape.rank), plan.input(piece(shape.rank)));
    plan.barrier();
    for (int rank = 0; rank < shape.ranks && shape.rank == shape.root; ++rank) {
      const Range out{parts[rank].begin + piece(rank).begin, piece(rank).count};
      plan.copy(plan.data(out), rank == shape.root ? plan.input(piece(rank)) : half(rank));
    }
  }
  return plan.take();
}

Plan scatter_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const std::int64_t piece_count = std::max<std::int64_t>(1, shape.chunk_count / shape.ranks);
  const std::int64_t chunks = chunks_in(parts.longest(), piece_count);
  plan.scratch_count(2 * shape.ranks * piece_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const auto piece = [&](int rank) {
      return chunk_of({0, parts[rank].count}, piece_count, chunk);
    };
    const auto staged = [&](int rank) {
      const std::int64_t slot = chunk % 2 * shape.ranks + rank;
      return plan.scratch(shape.root, {slot * piece_count, piece(rank).count});
    };
    for (int rank = 0; rank < shape.ranks && shape.rank == shape.root; ++rank) {
      const Range in{parts[rank].begin + piece(rank).begin, piece(rank).count};
      plan.copy(rank == shape.root ? plan.data(piece(rank)) : staged(rank), plan.input(in));
    }
    plan.barrier();
    if (shape.rank != shape.root) plan.copy(plan.data(piece(shape.rank)), staged(shape.rank));
  }
  return plan.take();
}

}  // namespace lockstep
