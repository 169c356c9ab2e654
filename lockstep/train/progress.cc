#include "lockstep/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace lockstep::train {

namespace {

constexpr std::chrono::milliseconds kLiveInterval{100};
constexpr double kNewShare = 0.05;
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

Progress Progress::to_standard_streams(bool ends_at_terminal) {
  if (!ends_at_terminal && ::isatty(STDERR_FILENO) == 0) return Progress(stdout, nullptr);
  // One stream where both end at the same terminal: else lines and the live line could swap.
  const bool together = ends_at_terminal || ::isatty(STDOUT_FILENO) != 0;
  return Progress(together ? stderr : stdout, stderr);
}

void Progress::begin(const Report& r, const Plan& plan) {
  plan_ = plan;
  log_every_ = plan.log_every > 0 ? plan.log_every
                                  : std::max<std::int64_t>(1, (plan.steps_per_epoch + 9) / 10);
  print_line(fmt::format(
      "{}, {} parameters · {}, {} samples · {} rank{}, {} thread{} each, {} · global batch {} · "
      "{} steps",
      r.model, with_commas(r.parameter_count), r.data, with_commas(r.train_samples), r.ranks,
      r.ranks == 1 ? "" : "s", r.threads_per_rank, r.threads_per_rank == 1 ? "" : "s", r.transport,
      r.global_batch, with_commas(plan.total_steps)));
}

std::string Progress::line_of(const StepNews& news) const {
  const double per_s = static_cast<double>(news.global_count) * 1000 / std::max(step_ms_, 1e-6);
  const double exposed = 100 * exposed_ms_ / std::max(step_ms_, 1e-6);
  const double left_s = static_cast<double>(plan_.total_steps - news.step - 1) * step_ms_ / 1000;
  return fmt::format(
      "epoch {}/{}  step {}/{}  loss {:.4f}  {:.0f} samples/s  {:.0f} % computing, {:.0f} % "
      "exposed "
      "communication  {} left",
      news.epoch + 1, plan_.epochs, news.step + 1, plan_.total_steps, loss_, per_s, 100 - exposed,
      exposed, human_seconds(left_s));
}

void Progress::step(const StepNews& news) {
  // The first step warms caches up and is no guide to the others.
  const double share =
      steps_seen_ <= 1 ? 1 : std::max(kNewShare, 1.0 / static_cast<double>(steps_seen_));
  ++steps_seen_;
  step_ms_ += share * (news.step_ms - step_ms_);
  exposed_ms_ += share * (news.exposed_comm_ms - exposed_ms_);
  loss_ += share * (news.loss - loss_);
  if (live_ != nullptr) {
    const auto now = Clock::now();
    if (now - last_live_ < kLiveInterval) return;
    last_live_ = now;
    live_shown_ = true;
    fmt::print(live_, "{}{}", kClearLine, line_of(news));
    std::fflush(live_);
  } else if ((news.step + 1) % log_every_ == 0) {
    print_line(line_of(news));
  }
}

void Progress::epoch(const EpochNews& news) {
  std::string text = fmt::format("epoch {}/{} done in {}: train loss {:.4f}", news.epoch + 1,
                                 plan_.epochs, human_seconds(news.seconds), news.train_loss);
  if (news.loss) text += fmt::format(", test loss {:.4f}", *news.loss);
  if (news.accuracy) text += fmt::format(", test accuracy {:.2f} %", *news.accuracy * 100);
  print_line(text);
}

void Progress::end(const Report& report) {
  clear_live();
  fmt::print(lines_, "{}", to_table(report));
  std::fflush(lines_);
}

void Progress::print_line(const std::string& text) {
  clear_live();
  fmt::print(lines_, "{}\n", text);
  std::fflush(lines_);
}

void Progress::clear_live() {
  if (!live_shown_) return;
  live_shown_ = false;
  fmt::print(live_, "{}", kClearLine);
  std::fflush(live_);
}

}  // namespace lockstep::train
