#include "lockstep/plan/cutting.h"

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::int64_t kCacheLineBytes = 64;
// How much is in flight at a time. Of a reduction a rank holds two chunks of every peer's slice; a
// broadcast passes on what has come, so its chunks are shorter.
constexpr std::int64_t kMessageChunkBytes = 4 << 20;
constexpr std::int64_t kBroadcastChunkBytes = 512 << 10;
// Reading everybody's bytes costs less than a second barrier up to about here, of all ranks
// together.
constexpr std::int64_t kFewBytes = 16 << 10;

}  // namespace

void cut_for_messages(Shape& shape, std::int64_t element_bytes) {
  shape.align_count = kCacheLineBytes / element_bytes;
  const bool broadcast = shape.operation == Operation::broadcast;
  shape.chunk_count = (broadcast ? kBroadcastChunkBytes : kMessageChunkBytes) / element_bytes;
  shape.few_count = kFewBytes / shape.ranks / element_bytes;
}

void cut_for_scratch(Shape& shape, const Algorithm& algorithm, std::int64_t element_bytes,
                     std::int64_t scratch_bytes) {
  if (!algorithm.needs.shared_scratch) return;
  // Two halves take turns, and slices start at cache lines of their own. Over several hosts there
  // is a chunk, and at most four slices for each rank (all_reduce_hierarchical.cc).
  const std::int64_t parts = algorithm.needs.messages ? 5 : 2;
  const std::int64_t share_bytes = scratch_bytes / parts;
  const std::int64_t chunk_bytes =
      share_bytes - std::min(shape.ranks * kCacheLineBytes, share_bytes / 2);
  shape.chunk_count = std::max<std::int64_t>(1, chunk_bytes / element_bytes);
}

}  // namespace lockstep
