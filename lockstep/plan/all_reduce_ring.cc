// all_reduce over messages along a ring: sums travel once around, then results.
//
// Restrictions: none. Order: any; slice i is added in the order i, i+1, … around the ring.
// Cost per rank: 2(N-1) rounds to one neighbour; sends and receives 2n(N-1)/N, the least possible.
// Patarasuk, Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_reduce_ring(const Shape& shape) {
  PlanBuilder plan("ring", {.messages = true}, shape);
  const int next = (shape.rank + 1) % shape.ranks;
  const int previous = (shape.rank + shape.ranks - 1) % shape.ranks;
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto slice = [&](std::int64_t chunk, int index) {
    const int wrapped = (index % shape.ranks + shape.ranks) % shape.ranks;
    return slice_of(chunk_of({0, shape.count}, shape.chunk_count, chunk), shape.ranks, wrapped,
                    shape.align_count);
  };
  const std::int64_t slot_count = chunks == 0 ? 0 : slice(0, 0).count;
  plan.scratch_count(slot_count);
  plan.partial_count(3 * slot_count);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    // Hop h brings the sum of h ranks for slice rank-h. The first is a value as it is.
    Location outgoing = plan.data(slice(chunk, shape.rank));
    for (int hop = 1; hop < shape.ranks; ++hop) {
      const Range range = slice(chunk, shape.rank - hop);
      const Location came =
          hop == 1 ? plan.scratch({0, range.count}) : plan.partial({0, range.count});
      plan.receive(previous, came);
      plan.send(next, outgoing);
      plan.wait_all();
      const bool last = hop + 1 == shape.ranks;
      const Location sum =
          last ? plan.data(range) : plan.partial({(1 + hop % 2) * slot_count, range.count});
      if (!last) plan.flush(plan.sends() - 1);
      plan.reduce({sum}, {came, plan.data(range)});
      outgoing = sum;
    }
    if (shape.ranks == 1) plan.reduce({outgoing}, {outgoing});
    plan.flush(plan.sends());
    for (int hop = 1; hop < shape.ranks; ++hop) {
      plan.receive(previous, plan.data(slice(chunk, shape.rank + 1 - hop)));
      plan.send(next, plan.data(slice(chunk, shape.rank + 2 - hop)));
      plan.wait_all();
    }
  }
  return plan.take();
}

}  // namespace lockstep
