#include "lockstep/plan/cutting.h"

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::int64_t kCacheLineBytes = 64;
// How much is in flight at a time; of a reduction a rank holds two chunks. Short, so that what the
// kernel copies is still in the cache and a message that is late holds up little; longer for many
// ranks, whose slices would be costly little messages.
constexpr std::int64_t kChunkBytesMin = 512 << 10;
constexpr std::int64_t kChunkBytesMax = 4 << 20;
constexpr std::int64_t kSliceBytes = 128 << 10;
// Reading everybody's bytes costs less than a second barrier up to about here, of all ranks
// together.
constexpr std::int64_t kFewBytes = 16 << 10;

}  // namespace

void cut_for_messages(Shape& shape, std::int64_t element_bytes) {
  shape.align_count = kCacheLineBytes / element_bytes;
  // A broadcast's chunks are not cut into slices.
  const bool whole = shape.operation == Operation::broadcast;
  const std::int64_t chunk_bytes = whole ? kChunkBytesMin : shape.ranks * kSliceBytes;
  shape.chunk_count = std::clamp(chunk_bytes, kChunkBytesMin, kChunkBytesMax) / element_bytes;
  shape.few_count = kFewBytes / shape.ranks / element_bytes;
}

void cut_for_scratch(Shape& shape, const Algorithm& algorithm, std::int64_t element_bytes,
                     std::int64_t scratch_bytes) {
  if (!algorithm.needs.shared_scratch) return;
  // Two halves take turns. Over several hosts there are the chunk itself and, of two chunks that
  // are under way, a slice for each block that comes from other hosts and that goes there: no more
  // than ranks.
  const std::int64_t parts = algorithm.needs.messages ? 5 : 2;
  const std::int64_t share = scratch_bytes / parts / element_bytes;
  // Slices begin at cache lines, which may take a line more of each rank: not of very many.
  if (shape.ranks * shape.align_count > share / 2) shape.align_count = 1;
  shape.chunk_count = std::max<std::int64_t>(1, share - shape.ranks * shape.align_count);
}

}  // namespace lockstep
