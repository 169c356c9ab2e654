// What is done with a bucket of gradients when all of them are there: by default one all_reduce.
// Hooks stand in front of it, one behind the other, and may change what goes over the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/group/group.h"
#include "lockstep/reducer/buckets.h"

namespace lockstep {

struct GradientBucket {
  // Which, in the order of launches, of how many. The assignment of gradients to buckets changes
  // once, after the first pass.
  std::size_t index = 0;
  std::size_t bucket_count = 1;
  // The gradients one after the other, with padding between them that must stay zero. A hook may
  // pass on another tensor (of another type, say), as long as it brings the result back here.
  TensorView tensor;
  // What the sum over the ranks is to be divided by.
  std::int64_t mean_of = 1;
  NotFinite* not_finite = nullptr;  // where the all_reduce reports
  // For names: gradients[members[i]] is the i-th in it.
  std::span<const Gradient> gradients;
  std::span<const std::size_t> members;
};

// What has been started for a bucket. `then`, if there is one, runs when the work is done, on the
// thread that is in backward, bucket after bucket; afterwards the bucket holds its result.
struct Reduction {
  Work work;
  std::function<void()> then;
};

using ReduceBucket = std::function<Reduction(const GradientBucket& bucket)>;

// Called on the thread that is in backward, for one bucket after the other, on every rank alike.
// `next` is the hook behind it, and at last the all_reduce: a hook calls it once, with the bucket
// or with one that stands for it. Collectives of its own are allowed: every rank makes the same.
using CommunicationHook =
    std::function<Reduction(const GradientBucket& bucket, const ReduceBucket& next)>;

// Sends buckets as `wire` (f16 or bf16), which halves the bytes of f32: each contribution is
// rounded once, sums are kept in f32, and the mean is rounded once more. Buckets of other types
// than f32 and f64 pass as they are. Throws Error(invalid_argument) for another wire type.
CommunicationHook compress_to(DType wire);

}  // namespace lockstep
