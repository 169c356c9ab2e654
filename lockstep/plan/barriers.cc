// barrier in shared memory: one step. Over messages: dissemination, ceil(log2 N) rounds of empty
// messages (Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization", 1988).
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan barrier_arena(const Shape& shape) {
  PlanBuilder plan("arena", Needs::shared_scratch, shape);
  plan.barrier();
  return plan.take();
}

Plan barrier_dissemination(const Shape& shape) {
  PlanBuilder plan("dissemination", Needs::messages, shape);
  for (int distance = 1; distance < shape.ranks; distance *= 2) {
    plan.receive((shape.rank - distance + shape.ranks) % shape.ranks, plan.data({0, 0}));
    plan.send((shape.rank + distance) % shape.ranks, plan.data({0, 0}));
    plan.wait(plan.receives());
  }
  return plan.take();
}

}  // namespace lockstep
