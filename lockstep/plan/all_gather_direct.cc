// all_gather over messages: every rank sends its part to every other.
//
// Restrictions: none. Cost per rank: N-1 messages, all at once; sends n(N-1), receives the rest,
// the least possible; latency of one message.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const Range own{0, parts[shape.rank].count};
  for (int d = 1; d < shape.ranks; ++d) {
    const int to = (shape.rank + d) % shape.ranks;
    const int from = (shape.rank - d + shape.ranks) % shape.ranks;
    plan.receive(from, plan.data(parts[from]));
    plan.send(to, plan.input(own));
  }
  plan.copy(plan.data(parts[shape.rank]), plan.input(own));
  plan.wait_all();
  return plan.take();
}

}  // namespace lockstep
