// send, from one rank to one other: the only plans of two ranks that are not the same operation for
// the whole group. Restrictions: none. Cost: one message.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan send_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  if (shape.rank == shape.root) {
    plan.send(shape.peer, plan.input({0, shape.count}));
  } else {
    plan.receive(shape.peer, plan.data({0, shape.count}));
    plan.wait_all();
  }
  return plan.take();
}

}  // namespace lockstep
