// all_reduce over messages by recursive halving and doubling: partners at distance 1, 2, 4 …
// exchange halves of what they still hold, then collect in reverse.
//
// Restrictions: ranks are a power of two. Order: canonical. Cost per rank: 2·log2 N rounds, sends
// and receives 2n(N-1)/N, the least possible. Unfinished sums travel in the accumulation type.
// Thakur, Rabenseifner, Gropp, 2005.
#include <algorithm>
#include <bit>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

bool power_of_two_ranks(const Shape& shape) {
  return std::has_single_bit(static_cast<unsigned>(shape.ranks));
}

Plan all_reduce_halving(const Shape& shape) {
  PlanBuilder plan("halving", {.messages = true}, shape);
  const int levels = std::countr_zero(static_cast<unsigned>(shape.ranks));
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const std::int64_t most = std::min(shape.count, shape.chunk_count);
  // What comes stands behind one another: a half, a quarter, …; so do the sums.
  plan.scratch_count(most);
  plan.partial_count(2 * (most + levels * (shape.align_count + 1)));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    plan.flush(plan.sends());  // of the chunk before: it used the same memory
    std::vector<Range> held = {chunk_of({0, shape.count}, shape.chunk_count, chunk)};
    Location own = plan.data(held[0]);
    std::int64_t used = 0;
    for (int level = 0; level < levels; ++level) {
      const int peer = shape.rank ^ (1 << level);
      const int half = (shape.rank >> level) & 1;
      const Range mine = slice_of(held.back(), 2, half, shape.align_count);
      const Range theirs = slice_of(held.back(), 2, 1 - half, shape.align_count);
      const auto within = [&](Range range) {
        Location location = own;
        location.range = {own.range.begin + range.begin - held.back().begin, range.count};
        return at_level(location, level);
      };
      const Location came =
          level == 0 ? plan.scratch({0, mine.count}) : plan.partial({used, mine.count});
      if (level > 0) used += mine.count;
      plan.receive(peer, came);
      plan.send(peer, within(theirs));
      plan.wait_all();
      const bool last = level + 1 == levels;
      const Location sum = last ? plan.data(mine) : plan.partial({used, mine.count});
      if (!last) used += mine.count;
      std::vector<Location> sources = {within(mine), at_level(came, level)};
      if (half == 1) std::swap(sources[0], sources[1]);
      plan.reduce({sum}, sources);
      own = sum;
      held.push_back(mine);
    }
    if (levels == 0) plan.reduce({plan.data(held[0])}, {own});
    for (int level = levels; level-- > 0;) {
      const int peer = shape.rank ^ (1 << level);
      const Range mine = held.back();
      held.pop_back();
      const int half = (shape.rank >> level) & 1;
      // Where the result lands, the contribution may still be on its way out.
      if (level == levels - 1) plan.flush(plan.sends());
      plan.receive(peer, plan.data(slice_of(held.back(), 2, 1 - half, shape.align_count)));
      plan.send(peer, plan.data(mine));
      plan.wait_all();
    }
  }
  return plan.take();
}

}  // namespace lockstep
