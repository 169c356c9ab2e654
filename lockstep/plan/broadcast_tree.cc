// broadcast over messages along a binomial tree, chunk after chunk.
//
// Restrictions: none.
// Cost: ceil(log2 N) messages deep; the root sends n·ceil(log2 N). Chunks flow: a rank passes one
// on while the next arrives. Tree as in Thakur, Rabenseifner, Gropp, "Optimization of Collective
// Communication Operations in MPICH", 2005.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/tree.h"

namespace lockstep {

Plan broadcast_tree(const Shape& shape) {
  PlanBuilder plan("tree", {.messages = true}, shape);
  const int relative = (shape.rank - shape.root + shape.ranks) % shape.ranks;
  const auto absolute = [&](int r) { return (r + shape.root) % shape.ranks; };
  const Binomial place = binomial(relative, shape.ranks);
  const int parent = place.parent < 0 ? -1 : absolute(place.parent);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto range = [&](std::int64_t chunk) {
    return chunk_of({0, shape.count}, shape.chunk_count, chunk);
  };
  if (parent >= 0 && chunks > 0) plan.receive(parent, plan.data(range(0)));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (parent >= 0) {
      if (chunk + 1 < chunks) plan.receive(parent, plan.data(range(chunk + 1)));
      plan.wait(chunk + 1);
    }
    for (int child = place.span / 2; child > 0; child /= 2) {
      if (relative + child < shape.ranks) {
        plan.send(absolute(relative + child), plan.data(range(chunk)));
      }
    }
  }
  return plan.take();
}

}  // namespace lockstep
