#include "lockstep/torch/loss_scaler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

bool is_finite(const at::Tensor& gradient) {
  const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
  const at::Tensor dense = values.is_non_overlapping_and_dense() ? values : values.contiguous();
  const TensorView view(dense);
  return all_finite(static_cast<const std::byte*>(view.data), view.dtype, view.count);
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), scale_(options.scale) {
  const bool sensible = std::isfinite(options.scale) && options.scale > 0 && options.growth >= 1 &&
                        options.backoff > 0 && options.backoff < 1 && options.growth_interval >= 1;
  if (sensible) return;
  fail(Code::invalid_argument,
       "LossScaler: scale {}, growth {}, backoff {}, growth_interval {}: the scale must be "
       "positive, "
       "growth at least 1, backoff in (0, 1), the interval at least 1",
       options.scale, options.growth, options.backoff, options.growth_interval);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  return loss * scale_;
}

bool LossScaler::unscale(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  const bool finite = std::all_of(parameters.begin(), parameters.end(), [](const auto& parameter) {
    return !parameter.grad().defined() || is_finite(parameter.grad());
  });
  if (!finite) {
    scale_ *= options_.backoff;
    steady_ = 0;
    return false;
  }
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.grad().mul_(1 / scale_);
  }
  if (++steady_ == options_.growth_interval) {
    const double next = scale_ * options_.growth;
    if (std::isfinite(next)) scale_ = next;
    steady_ = 0;
  }
  return true;
}

void LossScaler::restore(double scale, std::int64_t steps_since_change) {
  scale_ = scale;
  steady_ = steps_since_change;
}

}  // namespace lockstep
