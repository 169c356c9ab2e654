// all_gather over messages along a ring: each rank passes on what it got last.
//
// Restrictions: none. Cost per rank: N-1 rounds, one message each to one neighbour; sends n(N-1),
// the least possible, over one link: for networks where neighbours are near.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_ring(const Shape& shape) {
  PlanBuilder plan("ring", {.messages = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const int next = (shape.rank + 1) % shape.ranks;
  const int previous = (shape.rank + shape.ranks - 1) % shape.ranks;
  plan.copy(plan.data(parts[shape.rank]), plan.input({0, parts[shape.rank].count}));
  for (int d = 0; d + 1 < shape.ranks; ++d) {
    const int outgoing = (shape.rank - d + shape.ranks) % shape.ranks;
    const int incoming = (shape.rank - d - 1 + shape.ranks) % shape.ranks;
    plan.receive(previous, plan.data(parts[incoming]));
    plan.send(next, plan.data(parts[outgoing]));
    plan.wait_all();
  }
  return plan.take();
}

}  // namespace lockstep
