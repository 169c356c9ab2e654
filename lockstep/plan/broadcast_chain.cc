// broadcast over messages along a chain, chunk after chunk.
//
// Restrictions: none. Cost: N-1 messages deep, but every rank sends n once at most: for long
// tensors, where the chunks fill the chain.
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"

namespace lockstep {

Plan broadcast_chain(const Shape& shape) {
  PlanBuilder plan("chain", {.messages = true}, shape);
  const int place = (shape.rank - shape.root + shape.ranks) % shape.ranks;
  const int previous = (shape.rank + shape.ranks - 1) % shape.ranks;
  const int next = (shape.rank + 1) % shape.ranks;
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto range = [&](std::int64_t chunk) {
    return plan.data(chunk_of({0, shape.count}, shape.chunk_count, chunk));
  };
  if (place > 0 && chunks > 0) plan.receive(previous, range(0));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (place > 0) {
      if (chunk + 1 < chunks) plan.receive(previous, range(chunk + 1));
      plan.wait(chunk + 1);
    }
    if (place + 1 < shape.ranks) plan.send(next, range(chunk));
  }
  return plan.take();
}

}  // namespace lockstep
