// What a step cost this rank.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/reducer/reducer.h"

namespace lockstep {

// Of the last backward pass that reduced.
struct StepCost {
  double forward_ms = 0;   // begin_step() → first gradient; 0 if it was not called
  double backward_ms = 0;  // first gradient ready → backward returned
  double exposed_comm_ms =
      0;  // part of it in which this thread reduced or waited instead of computing
  std::int64_t bytes_reduced = 0;
  int buckets = 0;
  std::vector<BucketTimes> bucket_times;  // since the first gradient, in the order of launches
  // What the sums were divided by: ranks, live ranks, or samples. 0: there were no samples
  // anywhere, and the gradients are sums.
  std::int64_t divided_by = 0;
  // An infinity or a NaN is in the gradients. The same on all ranks.
  bool not_finite = false;
};

}  // namespace lockstep
