#include "lockstep/torch/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep {

LearningRate::LearningRate(const LearningRateOptions& options)
    : options_(options), peak_(options.rate) {
  if (!(options.rate >= 0) || options.warmup_steps < 0 || options.decay_until < 0) {
    fail(Code::invalid_argument,
         "LearningRate: rate {}, warmup_steps {}, decay_until {}: must not be negative",
         options.rate, options.warmup_steps, options.decay_until);
  }
  if (options.scaling == RateScaling::none) return;
  if (options.batch < 1 || options.base_batch < 1) {
    fail(Code::invalid_argument,
         "LearningRate: a batch of {} and a base_batch of {}: scaling needs both, at least 1",
         options.batch, options.base_batch);
  }
  start_ = options.rate;
  const double growth =
      static_cast<double>(options.batch) / static_cast<double>(options.base_batch);
  peak_ *= options.scaling == RateScaling::linear ? growth : std::sqrt(growth);
}

double LearningRate::at(std::int64_t step) const {
  if (step < options_.warmup_steps) {
    const double part = static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
    return start_ + (peak_ - start_) * part;
  }
  if (options_.decay_until == 0) return peak_;
  const auto after = [&](std::int64_t at) {
    return static_cast<double>(at - options_.warmup_steps);
  };
  const double part = std::min(1.0, after(step) / std::max(1.0, after(options_.decay_until)));
  return peak_ * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace lockstep
