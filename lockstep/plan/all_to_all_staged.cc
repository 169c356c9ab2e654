// all_to_all through shared scratch, for memory that only its own rank maps.
//
// Restrictions: one host; scratch of 2 chunks is mapped by all ranks; parts of one size.
// Cost per rank: copies n(N-1)/N in and out; a barrier per chunk. A chunk of scratch holds an equal
// piece of every part. Two halves take turns.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_to_all_staged(const Shape& shape) {
  PlanBuilder plan("staged", {.shared_scratch = true}, shape);
  const std::int64_t piece_count = std::max<std::int64_t>(1, shape.chunk_count / shape.ranks);
  const std::int64_t chunks = chunks_in(shape.count, piece_count);
  plan.scratch_count(2 * shape.ranks * piece_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const Range piece = chunk_of({0, shape.count}, piece_count, chunk);
    // Of the part of `rank`.
    const auto within = [&](int rank) {
      return Range{rank * shape.count + piece.begin, piece.count};
    };
    // On `from`: what goes to `to`.
    const auto staged = [&](int from, int to) {
      const std::int64_t slot = chunk % 2 * shape.ranks + to;
      return plan.scratch(from, {slot * piece_count, piece.count});
    };
    for (int d = 1; d < shape.ranks; ++d) {
      const int to = (shape.rank + d) % shape.ranks;
      plan.copy(staged(shape.rank, to), plan.input(within(to)));
    }
    plan.copy(plan.data(within(shape.rank)), plan.input(within(shape.rank)));
    plan.barrier();
    for (int d = 1; d < shape.ranks; ++d) {
      const int from = (shape.rank + d) % shape.ranks;
      plan.copy(plan.data(within(from)), staged(from, shape.rank));
    }
  }
  return plan.take();
}

}  // namespace lockstep
