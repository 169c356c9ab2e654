// Into which pieces tensors are cut: the shapes that the engine makes plans for, and so those that
// `lockstep plan` shows and benchmarks measure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/plan/plan.h"

namespace lockstep {

// Shared scratch of each rank in the arena. A chunk is half of it. Measured, 2 ranks, 4 MiB of a
// user's own: 240 µs; 273 with half of this, 281 with twice as much.
inline constexpr std::size_t kScratchBytes = 1 << 20;

// Sets alignment and chunks for what is sent in messages; enough to choose an algorithm.
void cut_for_messages(Shape& shape, std::int64_t element_bytes);

// Cuts smaller where `algorithm` works in shared scratch of `scratch_bytes` per rank.
void cut_for_scratch(Shape& shape, const Algorithm& algorithm, std::int64_t element_bytes,
                     std::int64_t scratch_bytes);

}  // namespace lockstep
