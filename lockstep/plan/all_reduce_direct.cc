// all_reduce over messages: every rank sends slice r of each chunk to rank r, which reduces it and
// sends the result back to everybody.
//
// Restrictions: none. Order: canonical.
// Cost per rank, N ranks, n bytes: sends and receives 2n(N-1)/N, the least possible; 2(N-1)
// messages per chunk; latency of two messages. Scratch: two chunks. The next chunk's contributions
// are on their way while this one is reduced.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_reduce_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Range whole{0, shape.count};
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto slice = [&](std::int64_t chunk, int rank) {
    return slice_of(chunk_of(whole, shape.chunk_count, chunk), shape.ranks, rank,
                    shape.align_count);
  };
  // Slices of a chunk differ in length by at most one unit of alignment; slice 0 is the longest.
  const std::int64_t slot_count = chunks == 0 ? 0 : slice(0, 0).count;
  plan.scratch_count(2 * shape.ranks * slot_count);
  const auto slot = [&](std::int64_t chunk, int rank) {
    const std::int64_t index = (chunk % 2) * shape.ranks + rank;
    return plan.scratch({index * slot_count, slice(chunk, shape.rank).count});
  };
  const auto peer_at = [&](int distance) { return (shape.rank + distance) % shape.ranks; };
  const auto contribute = [&](std::int64_t chunk) {
    for (int d = 1; d < shape.ranks; ++d) {
      plan.receive(peer_at(d), slot(chunk, peer_at(d)));
      plan.send(peer_at(d), plan.data(slice(chunk, peer_at(d))));
    }
    return plan.receives();
  };

  std::int64_t contributions = chunks > 0 ? contribute(0) : 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t awaited = contributions;
    if (chunk + 1 < chunks) contributions = contribute(chunk + 1);
    plan.wait(awaited);
    std::vector<Location> sources;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      sources.push_back(rank == shape.rank ? plan.data(slice(chunk, rank)) : slot(chunk, rank));
    }
    plan.reduce({plan.data(slice(chunk, shape.rank))}, sources);
    for (int d = 1; d < shape.ranks; ++d) {
      plan.receive(peer_at(d), plan.data(slice(chunk, peer_at(d))));
      plan.send(peer_at(d), plan.data(slice(chunk, shape.rank)));
    }
  }
  plan.wait_all();
  return plan.take();
}

}  // namespace lockstep
