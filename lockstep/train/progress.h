// What rank 0 shows while it trains: a line that is rewritten in place on a terminal, plain lines
// now and then otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "lockstep/train/report.h"

namespace lockstep::train {

struct StepNews {
  std::int64_t epoch = 0;         // counted from 0, as steps
  std::int64_t step = 0;          // in all
  std::int64_t global_count = 0;  // samples of this step on all ranks
  double loss = 0;
  double step_ms = 0;
  double exposed_comm_ms = 0;
};

struct EpochNews {
  std::int64_t epoch = 0;
  double train_loss = 0;
  std::optional<double> accuracy = {};
  std::optional<double> loss = {};
  double seconds = 0;
};

class Progress {
 public:
  struct Plan {
    std::int64_t epochs = 0;
    std::int64_t steps_per_epoch = 0;
    std::int64_t total_steps = 0;
    std::int64_t log_every = 0;  // 0: ten lines an epoch
  };

  // Where lines go: both streams must outlive the Progress. `live` is null if there is no terminal.
  Progress(std::FILE* lines, std::FILE* live) : lines_(lines), live_(live) {}
  // To standard output; live on standard error if that is a terminal, or is said to end at one.
  static Progress to_standard_streams(bool ends_at_terminal);

  void begin(const Report& report, const Plan& plan);
  void step(const StepNews& news);
  void epoch(const EpochNews& news);
  void end(const Report& report);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line_of(const StepNews& news) const;
  void print_line(const std::string& text);
  void clear_live();

  std::FILE* lines_;
  std::FILE* live_;
  Plan plan_;
  std::int64_t log_every_ = 1;
  // Averages that forget: each step counts 5 % in the next.
  double step_ms_ = 0;
  double exposed_ms_ = 0;
  double loss_ = 0;
  std::int64_t steps_seen_ = 0;
  Clock::time_point last_live_{};
  bool live_shown_ = false;
};

}  // namespace lockstep::train
