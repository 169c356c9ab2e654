#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::train {

Schedule::Schedule(const TrainSettings& settings, std::int64_t total_steps)
    : start_(settings.lr_scaling == "none" ? 0 : settings.lr),
      peak_(settings.lr),
      warmup_steps_(settings.warmup_steps),
      total_steps_(total_steps),
      cosine_(settings.lr_schedule == "cosine") {
  if (settings.lr_scaling == "none") return;
  const double growth =
      static_cast<double>(settings.batch) / static_cast<double>(settings.base_batch);
  peak_ *= settings.lr_scaling == "linear" ? growth : std::sqrt(growth);
}

double Schedule::rate(std::int64_t step) const {
  if (step < warmup_steps_) {
    const double part = static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
    return start_ + (peak_ - start_) * part;
  }
  if (!cosine_) return peak_;
  const double whole = static_cast<double>(std::max<std::int64_t>(1, total_steps_ - warmup_steps_));
  const double part = std::min(1.0, static_cast<double>(step - warmup_steps_) / whole);
  return peak_ * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace lockstep::train
