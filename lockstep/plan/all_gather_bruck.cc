// all_gather of small parts over messages in few rounds.
//
// Restrictions: parts of one size. Cost per rank: ceil(log2 N) rounds of one message; sends n(N-1)
// and copies everything once more at the end. Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient
// Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997.
#include <algorithm>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_gather_bruck(const Shape& shape) {
  PlanBuilder plan("bruck", {.messages = true}, shape);
  const std::int64_t count = shape.count;
  // Scratch holds the parts in the order in which they come: this rank's, the next rank's, …
  plan.scratch_count(shape.ranks * count);
  plan.copy(plan.scratch({0, count}), plan.input({0, count}));
  for (int held = 1; held < shape.ranks; held *= 2) {
    const int moved = std::min(held, shape.ranks - held);
    const int to = (shape.rank - held + shape.ranks) % shape.ranks;
    const int from = (shape.rank + held) % shape.ranks;
    plan.receive(from, plan.scratch({held * count, moved * count}));
    plan.send(to, plan.scratch({0, moved * count}));
    plan.wait_all();
  }
  const std::int64_t upper = (shape.ranks - shape.rank) * count;  // parts rank … N-1
  plan.copy(plan.data({shape.rank * count, upper}), plan.scratch({0, upper}));
  plan.copy(plan.data({0, shape.rank * count}), plan.scratch({upper, shape.rank * count}));
  return plan.take();
}

}  // namespace lockstep
