// all_reduce over messages: reduce along the tree of the canonical order, then broadcast.
//
// Restrictions: none. Order: canonical. Cost: 2·ceil(log2 N) messages deep; rank 0 sends and
// receives n·ceil(log2 N). For few bytes among ranks that are no power of two.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/tree.h"

namespace lockstep {

Plan all_reduce_tree(const Shape& shape) {
  PlanBuilder plan("tree", {.messages = true}, shape);
  const TreeWay way = tree_way(shape.rank, shape.ranks, 0);
  const auto merges = static_cast<std::int64_t>(way.merges.size());
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const std::int64_t slot_count = std::min(shape.count, shape.chunk_count);
  plan.scratch_count(merges * slot_count);
  plan.partial_count((merges + 1) * slot_count);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const auto slot = [&](std::int64_t merge) {
      const Range at{merge * slot_count, range.count};
      const bool leaf = merge < merges && way.merges[static_cast<std::size_t>(merge)].leaf;
      return leaf ? plan.scratch(at) : plan.partial(at);
    };
    std::vector<Location> sources = {plan.data(range)};
    for (std::int64_t m = 0; m < merges; ++m) {
      const TreeWay::Merge& merge = way.merges[static_cast<std::size_t>(m)];
      plan.receive(merge.peer, slot(m));
      sources.push_back(at_level(slot(m), merge.level));  // root is rank 0: all others are right
    }
    plan.wait_all();
    if (way.parent < 0) {
      plan.reduce({plan.data(range)}, sources);
    } else {
      if (merges > 0) plan.reduce({slot(merges)}, sources);
      plan.send(way.parent, merges > 0 ? slot(merges) : plan.data(range));
      plan.receive(way.parent, plan.data(range));
      plan.wait_all();
    }
    for (auto m = merges; m-- > 0;) {
      plan.send(way.merges[static_cast<std::size_t>(m)].peer, plan.data(range));
    }
  }
  return plan.take();
}

}  // namespace lockstep
