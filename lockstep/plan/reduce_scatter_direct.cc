// reduce_scatter over messages: every rank sends part r of its input to rank r, which reduces.
//
// Restrictions: none. Order: canonical. Cost per rank, n bytes of input: sends and receives
// n(N-1)/N, the least possible; N-1 messages, all at once. Scratch: N parts.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan reduce_scatter_direct(const Shape& shape) {
  PlanBuilder plan("direct", {.messages = true}, shape);
  const Parts parts(shape.ranks, shape.count, shape.counts);
  const std::int64_t own_count = parts[shape.rank].count;
  plan.scratch_count(shape.ranks * own_count);
  const auto slot = [&](int rank) { return plan.scratch({rank * own_count, own_count}); };
  for (int d = 1; d < shape.ranks; ++d) {
    const int to = (shape.rank + d) % shape.ranks;
    const int from = (shape.rank - d + shape.ranks) % shape.ranks;
    plan.receive(from, slot(from));
    plan.send(to, plan.input(parts[to]));
  }
  plan.wait_all();
  std::vector<Location> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    sources.push_back(rank == shape.rank ? plan.input(parts[rank]) : slot(rank));
  }
  plan.reduce({plan.data({0, own_count})}, sources);
  return plan.take();
}

}  // namespace lockstep
