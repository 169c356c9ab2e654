// all_reduce over messages by recursive doubling: blocks of 1, 2, 4 … ranks exchange their sums.
//
// Restrictions: none; ranks need not be a power of two (a ragged block's ranks serve several).
// Order: canonical. Cost per rank: ceil(log2 N) rounds, sends n in each (in a ragged block up to
// twice): the fewest rounds there are, for few bytes. Thakur, Rabenseifner, Gropp, 2005.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

namespace {

// Which rank of the block [begin, end) gives its sum to the rank at `index` of the other block.
int giver(int begin, int end, int index) {
  return begin + index % (end - begin);
}

}  // namespace

Plan all_reduce_doubling(const Shape& shape) {
  PlanBuilder plan("doubling", {.messages = true}, shape);
  int levels = 0;
  while ((1 << levels) < shape.ranks) ++levels;
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const std::int64_t slot_count = std::min(shape.count, shape.chunk_count);
  plan.scratch_count(levels * slot_count);
  plan.partial_count(2 * levels * slot_count);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    plan.flush(plan.sends());  // of the chunk before: it used the same memory
    const Range whole = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    Location own = plan.data(whole);
    for (int level = 0; level < levels; ++level) {
      const int span = 1 << level;
      const auto block_end = [&](int begin) { return std::min(begin + span, shape.ranks); };
      const int begin = shape.rank & ~(span - 1);
      const int other = begin ^ span;
      if (other >= shape.ranks) continue;  // not at the last level: both blocks are there
      const bool leaf = other + 1 == block_end(other);
      const Location came = leaf ? plan.scratch({level * slot_count, whole.count})
                                 : plan.partial({2 * level * slot_count, whole.count});
      plan.receive(giver(other, block_end(other), shape.rank - begin), came);
      for (int rank = other; rank < block_end(other); ++rank) {
        if (giver(begin, block_end(begin), rank - other) == shape.rank) plan.send(rank, own);
      }
      plan.wait_all();
      const bool last = level + 1 == levels;
      const Location sum =
          last ? plan.data(whole) : plan.partial({(2 * level + 1) * slot_count, whole.count});
      if (last) plan.flush(plan.sends());  // of the data, which is overwritten now
      std::vector<Location> sources = {at_level(own, level), at_level(came, level)};
      if (other < begin) std::swap(sources[0], sources[1]);
      plan.reduce({sum}, sources);
      own = sum;
    }
    if (levels == 0) plan.reduce({own}, {own});  // alone: the mean of one
  }
  return plan.take();
}

}  // namespace lockstep
