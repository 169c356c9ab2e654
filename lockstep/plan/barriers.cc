// barrier in shared memory: one step. Over messages: dissemination, ceil(log2 N) rounds of empty
// messages (Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization", 1988). With
// several hosts: inside each, between their first ranks, inside each.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/hosts.h"

namespace lockstep {

namespace {

void disseminate(PlanBuilder& plan, const std::vector<int>& ranks, int index) {
  const int count = static_cast<int>(ranks.size());
  for (int distance = 1; distance < count; distance *= 2) {
    const auto at = [&](int i) { return ranks[static_cast<std::size_t>((i + count) % count)]; };
    plan.receive(at(index - distance), plan.data({0, 0}));
    plan.send(at(index + distance), plan.data({0, 0}));
    plan.wait_all();
  }
}

}  // namespace

Plan barrier_arena(const Shape& shape) {
  PlanBuilder plan("arena", {.shared_scratch = true}, shape);
  plan.barrier();
  return plan.take();
}

Plan barrier_dissemination(const Shape& shape) {
  PlanBuilder plan("dissemination", {.messages = true}, shape);
  std::vector<int> all;
  for (int rank = 0; rank < shape.ranks; ++rank) all.push_back(rank);
  disseminate(plan, all, shape.rank);
  return plan.take();
}

Plan barrier_hierarchical(const Shape& shape) {
  PlanBuilder plan("hierarchical", {.shared_scratch = true, .messages = true}, shape);
  const Hosts hosts(shape);
  plan.barrier();
  if (hosts.leader() == shape.rank) disseminate(plan, hosts.leaders(), hosts.own());
  plan.barrier();
  return plan.take();
}

}  // namespace lockstep
