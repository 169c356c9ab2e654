// LossScaler: keeps small gradients of f16 parameters from vanishing (Micikevicius et al., "Mixed
// Precision Training", ICLR 2018): the loss is multiplied by a scale, the gradients are divided by
// it again; when they overflow the step is left out and the scale is lowered.
//
//   scaler.scale(loss).backward();
//   if (scaler.unscale(net->parameters())) optimizer.step();
//
// Under DistributedDataParallel the gradients are the same on all ranks when backward() returns, so
// that every rank takes the same decision, and scales stay the same, without a word between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

struct LossScalerOptions {
  double scale = 65536;
  double growth = 2;     // factor after `growth_interval` steps in a row without an overflow
  double backoff = 0.5;  // factor after an overflow
  std::int64_t growth_interval = 2000;
};

class LossScaler {
 public:
  // Throws Error(invalid_argument) for factors that make no sense.
  explicit LossScaler(const LossScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients by the scale, in place. False: one of them is not finite; this step is to
  // be left out (the gradients are as they were). Moves the scale for the next step.
  bool unscale(const std::vector<at::Tensor>& parameters);

  // For checkpoints.
  double current_scale() const { return scale_; }
  std::int64_t steps_since_change() const { return steady_; }
  void restore(double scale, std::int64_t steps_since_change);

 private:
  const LossScalerOptions options_;
  double scale_;
  std::int64_t steady_ = 0;
};

}  // namespace lockstep
