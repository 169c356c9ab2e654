// all_gather over messages: everybody sends its input to everybody.
//
// Restrictions: none.
// Cost per rank: sends and receives n(N-1), the least possible; latency of one message.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_direct(const Shape& shape) {
  PlanBuilder plan("direct", Needs::messages, shape);
  const Range input{0, shape.count};
  const auto place = [&](int rank) { return plan.data({rank * shape.count, shape.count}); };
  for (int d = 1; d < shape.ranks; ++d) {
    const int to = (shape.rank + d) % shape.ranks;
    const int from = (shape.rank - d + shape.ranks) % shape.ranks;
    plan.receive(from, place(from));
    plan.send(to, plan.input(input));
  }
  plan.copy(place(shape.rank), plan.input(input));
  plan.wait(plan.receives());
  return plan.take();
}

}  // namespace lockstep
