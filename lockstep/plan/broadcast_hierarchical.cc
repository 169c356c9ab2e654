// broadcast over several hosts: along a tree of one rank per host, inside each through scratch.
//
// Restrictions: ranks of a host share scratch of 2 chunks.
// Cost: n bytes into each host, whatever its ranks; ceil(log2 hosts) messages deep; inside a host
// one copy in, one copy out per rank, one barrier per chunk. On root's host root is the first rank.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/hosts.h"
#include "lockstep/plan/tree.h"

namespace lockstep {

Plan broadcast_hierarchical(const Shape& shape) {
  PlanBuilder plan("hierarchical", {.shared_scratch = true, .messages = true}, shape);
  const Hosts hosts(shape);
  const int root_host = hosts.of(shape.root);
  const auto first_on = [&](int host) {
    return host == root_host ? shape.root : hosts.leaders()[static_cast<std::size_t>(host)];
  };
  const int relative = (hosts.own() - root_host + hosts.count()) % hosts.count();
  const auto absolute = [&](int r) { return first_on((r + root_host) % hosts.count()); };
  const bool first = first_on(hosts.own()) == shape.rank;
  const Binomial place = binomial(relative, hosts.count());
  plan.scratch_count(2 * shape.chunk_count);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto range = [&](std::int64_t chunk) {
    return chunk_of({0, shape.count}, shape.chunk_count, chunk);
  };
  const bool receives = first && place.parent >= 0;
  const int parent = receives ? absolute(place.parent) : -1;
  if (receives && chunks > 0) plan.receive(parent, plan.data(range(0)));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range half{(chunk % 2) * shape.chunk_count, range(chunk).count};
    if (receives) {
      if (chunk + 1 < chunks) plan.receive(parent, plan.data(range(chunk + 1)));
      plan.wait(chunk + 1);
    }
    for (int child = place.span / 2; first && child > 0; child /= 2) {
      if (relative + child < hosts.count()) {
        plan.send(absolute(relative + child), plan.data(range(chunk)));
      }
    }
    if (first) plan.copy(plan.scratch(half), plan.data(range(chunk)));
    plan.barrier();
    if (!first) plan.copy(plan.data(range(chunk)), plan.scratch(first_on(hosts.own()), half));
  }
  if (chunks == 0) plan.barrier();
  return plan.take();
}

}  // namespace lockstep
