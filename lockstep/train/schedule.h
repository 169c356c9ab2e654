// The learning rate of every step.
//
// Scaling with the batch: Goyal et al., "Accurate, Large Minibatch SGD" (2017), linear rule and
// warm-up from the unscaled rate; Krizhevsky, "One weird trick" (2014), square root. Cosine decay:
// Loshchilov and Hutter, "SGDR" (ICLR 2017), one period.
#pragma once

#include <cstdint>

#include "lockstep/train/settings.h"

namespace lockstep::train {

class Schedule {
 public:
  Schedule(const TrainSettings& settings, std::int64_t total_steps);

  // Step 0 is the first. During warm-up the rate ends at the peak with step warmup_steps - 1.
  double rate(std::int64_t step) const;
  double peak() const { return peak_; }

 private:
  double start_ = 0;
  double peak_ = 0;
  std::int64_t warmup_steps_ = 0;
  std::int64_t total_steps_ = 0;
  bool cosine_ = false;
};

}  // namespace lockstep::train
