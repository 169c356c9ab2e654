// reduce over messages along the tree of the canonical order, chunk after chunk.
//
// Restrictions: none. Order: canonical, at any root.
// Cost: ceil(log2 N) messages deep; root receives n·ceil(log2 N) at most. Chunks flow: a rank
// merges one while the next arrives. Unfinished sums travel in the accumulation type.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/tree.h"

namespace lockstep {

Plan reduce_tree(const Shape& shape) {
  PlanBuilder plan("tree", {.messages = true}, shape);
  const TreeWay way = tree_way(shape.rank, shape.ranks, shape.root);
  const auto merges = static_cast<std::int64_t>(way.merges.size());
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const std::int64_t slot_count = std::min(shape.count, shape.chunk_count);
  const auto range = [&](std::int64_t chunk) {
    return chunk_of({0, shape.count}, shape.chunk_count, chunk);
  };
  // A leaf travels as it is, sums as partials. Two chunks are under way: slots for what comes, and
  // one for the own sum, which may still be on its way up.
  const auto slot = [&](std::int64_t chunk, std::int64_t merge) {
    const std::int64_t index = (chunk % 2) * (merges + 1) + merge;
    const Range at{index * slot_count, range(chunk).count};
    const bool leaf = merge < merges && way.merges[static_cast<std::size_t>(merge)].leaf;
    return leaf ? plan.scratch(at) : plan.partial(at);
  };
  plan.scratch_count(2 * (merges + 1) * slot_count);
  plan.partial_count(2 * (merges + 1) * slot_count);
  const auto ask = [&](std::int64_t chunk) {
    for (std::int64_t m = 0; m < merges; ++m) {
      plan.receive(way.merges[static_cast<std::size_t>(m)].peer, slot(chunk, m));
    }
    return plan.receives();
  };
  std::int64_t awaited = chunks > 0 ? ask(0) : 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t now = awaited;
    if (chunk + 1 < chunks) awaited = ask(chunk + 1);
    plan.wait(now);
    std::vector<Location> sources = {plan.data(range(chunk))};
    for (std::int64_t m = 0; m < merges; ++m) {
      const TreeWay::Merge& merge = way.merges[static_cast<std::size_t>(m)];
      const auto at = merge.peer_left ? sources.begin() : sources.end();
      sources.insert(at, at_level(slot(chunk, m), merge.level));
    }
    if (way.parent < 0) {
      plan.reduce({plan.data(range(chunk))}, sources);
    } else if (merges == 0) {
      plan.send(way.parent, plan.data(range(chunk)));
    } else {
      plan.flush(plan.sends() - 1);  // the sum that stood here left two chunks ago
      plan.reduce({slot(chunk, merges)}, sources);
      plan.send(way.parent, slot(chunk, merges));
    }
  }
  return plan.take();
}

}  // namespace lockstep
