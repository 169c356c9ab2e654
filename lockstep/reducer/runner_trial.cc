#include "lockstep/reducer/runner_trial.h"

#include <algorithm>

namespace lockstep {

namespace {

// The other way must be better by this much: else what is measured is mostly chance.
constexpr double kBetterBy = 0.98;

Runner other(Runner runner) {
  return runner == Runner::caller ? Runner::progress_thread : Runner::caller;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Runner RunnerTrial::runner_of(std::int64_t pass) const {
  return (pass - kFirstPass) % 2 == 0 ? usual_ : other(usual_);
}

void RunnerTrial::begin(std::int64_t pass) {
  if (!over_ && pass >= kFirstPass) group_.set_runner(runner_of(pass));
}

void RunnerTrial::end(std::int64_t pass, double pass_ms) {
  if (over_ || pass < kFirstPass) return;
  pass_ms_[runner_of(pass) == usual_ ? 0 : 1].push_back(pass_ms);
  if (pass + 1 < kFirstPass + 2 * kPassesEach) return;
  over_ = true;
  // The ranks wait for one another: what counts is all of them together.
  double sums[2] = {median(pass_ms_[0]), median(pass_ms_[1])};
  group_.all_reduce({sums, 2, DType::f64});
  chosen_ = sums[1] < kBetterBy * sums[0] ? other(usual_) : usual_;
  group_.set_runner(*chosen_);
}

}  // namespace lockstep
