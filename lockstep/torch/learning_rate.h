// LearningRate: the rate of every step.
//
// Scaling with the batch: Goyal et al., "Accurate, Large Minibatch SGD" (2017), linear rule and
// warm-up from the unscaled rate; Krizhevsky, "One weird trick" (2014), square root. Cosine decay:
// Loshchilov and Hutter, "SGDR" (ICLR 2017), one period.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>

namespace lockstep {

enum class RateScaling : std::uint8_t {
  none,
  linear,       // by batch ÷ base_batch: for SGD
  square_root,  // by its root: for Adam and its kind
};

struct LearningRateOptions {
  double rate = 0.1;  // the right one for a global batch of base_batch
  RateScaling scaling = RateScaling::none;
  std::int64_t base_batch = 0;  // samples; needed for scaling
  std::int64_t batch = 0;       // the global batch, of all ranks together
  // Steps in which the rate rises to its peak: from `rate` if it is scaled, else from 0.
  std::int64_t warmup_steps = 0;
  // After warm-up the rate falls to 0 along a cosine, until this step; 0: it stays.
  std::int64_t decay_until = 0;
};

class LearningRate {
 public:
  // Throws Error(invalid_argument) that names the value that cannot be.
  explicit LearningRate(const LearningRateOptions& options);

  // Of step `step`; 0 is the first. During warm-up the peak is reached with step warmup_steps - 1.
  double at(std::int64_t step) const;
  double peak() const { return peak_; }

 private:
  const LearningRateOptions options_;
  double start_ = 0;
  double peak_ = 0;
};

// For all parameter groups of the optimizer.
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace lockstep
