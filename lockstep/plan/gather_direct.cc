// gather, scatter and all_to_all over messages: every part goes straight to where it belongs.
//
// Restrictions: none. Cost: root receives (sends) everybody's part; all_to_all: N-1 messages per
// rank, all at once, no rank sends more than its parts. Partners are met in rotated order, so that
// no rank is everybody's first.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan gather_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const Range own{0, parts[shape.rank].count};
  if (shape.rank != shape.root) {
    plan.send(shape.root, plan.input(own));
    return plan.take();
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (rank != shape.root) plan.receive(rank, plan.data(parts[rank]));
  }
  plan.copy(plan.data(parts[shape.root]), plan.input(own));
  plan.wait_all();
  return plan.take();
}

Plan scatter_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const Range own{0, parts[shape.rank].count};
  if (shape.rank != shape.root) {
    plan.receive(shape.root, plan.data(own));
    plan.wait_all();
    return plan.take();
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (rank != shape.root) plan.send(rank, plan.input(parts[rank]));
  }
  plan.copy(plan.data(own), plan.input(parts[shape.root]));
  return plan.take();
}

Plan all_to_all_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Parts outgoing(shape.ranks, shape.count, shape.counts);
  const Parts incoming(shape.ranks, shape.count, shape.receive_counts);
  for (int d = 1; d < shape.ranks; ++d) {
    const int to = (shape.rank + d) % shape.ranks;
    const int from = (shape.rank - d + shape.ranks) % shape.ranks;
    plan.receive(from, plan.data(incoming[from]));
    plan.send(to, plan.input(outgoing[to]));
  }
  plan.copy(plan.data(incoming[shape.rank]), plan.input(outgoing[shape.rank]));
  plan.wait_all();
  return plan.take();
}

}  // namespace lockstep
