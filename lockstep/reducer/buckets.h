// Buckets: which gradients travel together, and in what order. Pure bookkeeping on counts and
// types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/types.h"

namespace lockstep {

struct Gradient {
  std::string name;  // for messages
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

// A bucket holds gradients of one type, and at most so many bytes; a larger gradient has a bucket
// of its own. The first bucket may be smaller, so that it leaves earlier.
struct BucketLimits {
  std::int64_t bytes_max = std::int64_t{4} << 20;
  std::int64_t first_bytes_max = std::int64_t{1} << 20;
};

struct Bucket {
  DType dtype = DType::f32;
  std::size_t offset_bytes = 0;        // in the block
  std::int64_t count = 0;              // elements, padding between gradients included
  std::vector<std::size_t> gradients;  // in the order in which they lie
};

struct BucketPlan {
  std::vector<Bucket> buckets;            // in the order of launches
  std::vector<std::size_t> offset_bytes;  // of each gradient, in the block; 64-byte aligned
  std::vector<std::size_t> bucket_of;     // each gradient's
  // Behind the last bucket is room for one more element of its type, which may travel with it.
  std::size_t status_offset_bytes = 0;
  std::size_t block_bytes = 0;
};

// `order`: all gradients, in the order in which they are expected. Buckets are launched in the
// order in which they become complete if that holds.
BucketPlan plan_buckets(const std::vector<Gradient>& gradients,
                        const std::vector<std::size_t>& order, const BucketLimits& limits);

// From the last gradient to the first, as backward produces those of a plain chain of layers.
std::vector<std::size_t> reverse_order(std::size_t count);

}  // namespace lockstep
