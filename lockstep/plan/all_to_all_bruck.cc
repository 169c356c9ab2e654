// all_to_all of small parts over messages in few rounds.
//
// Restrictions: parts of one size. Cost per rank: ceil(log2 N) rounds of one message with half of
// everything; copies everything twice. Bruck et al., 1997 (see all_gather_bruck.cc).
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan all_to_all_bruck(const Shape& shape) {
  PlanBuilder plan("bruck", {.messages = true}, shape);
  const std::int64_t count = shape.count;
  // Slot i of scratch: a part that has i ranks still to go. Behind the slots: what comes, then what
  // is packed in each round (a message may be under way longer than its round).
  const int most = (shape.ranks + 1) / 2;
  int rounds = 0;
  while ((1 << rounds) < shape.ranks) ++rounds;
  plan.scratch_count((shape.ranks + (rounds + 1) * most) * count);
  const auto slot = [&](int i) { return plan.scratch({i * count, count}); };
  const auto came = [&](int i) { return slot(shape.ranks + i); };
  const auto packed = [&](int round, int i) { return slot(shape.ranks + most * (1 + round) + i); };
  const auto at = [&](int distance) { return (shape.rank + distance + shape.ranks) % shape.ranks; };
  for (int i = 0; i < shape.ranks; ++i) {
    plan.copy(slot(i), plan.input({at(i) * count, count}));
  }
  for (int round = 0; round < rounds; ++round) {
    const int distance = 1 << round;
    std::vector<int> moved;
    for (int i = 0; i < shape.ranks; ++i) {
      if ((i & distance) != 0) moved.push_back(i);
    }
    const auto packed_count = static_cast<std::int64_t>(moved.size()) * count;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      plan.copy(packed(round, static_cast<int>(i)), slot(moved[i]));
    }
    Location outgoing = packed(round, 0);
    Location incoming = came(0);
    outgoing.range.count = incoming.range.count = packed_count;
    plan.receive(at(-distance), incoming);
    plan.send(at(distance), outgoing);
    plan.wait_all();
    for (std::size_t i = 0; i < moved.size(); ++i) {
      plan.copy(slot(moved[i]), came(static_cast<int>(i)));
    }
  }
  for (int i = 0; i < shape.ranks; ++i) plan.copy(plan.data({at(-i) * count, count}), slot(i));
  return plan.take();
}

}  // namespace lockstep
