// Watches the ranks of a job from their start to the end of the last one.
//
// running ──a rank fails──▶ settling ──kSettle──▶ stopping ──grace──▶ killing
//    └───────────── SIGINT, SIGTERM, SIGHUP, SIGQUIT ─────▲              ▲
//                                         another signal ─┴──────────────┘
//
// Failures are in the order in which they were seen; but of those seen before the launcher's own
// signals, ranks that were killed come before ranks that exited or aborted (as one does that lost a
// peer); of those seen at once, the lowest rank comes first. Settling gives ranks that
// fail for the same reason the time to do so before the launcher's own signals hide their endings.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/env/fd.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/report.h"
#include "lockstep/launch/signals.h"
#include "lockstep/launch/writer.h"

namespace lockstep {

class Watch {
 public:
  // `guard` and `signals` must outlive it. One thread.
  Watch(const LaunchOptions& options, int ranks, Guard& guard, SignalInbox& signals);

  // Rank number = order of the calls. `log` may be invalid.
  void add(Child child, Fd log);
  // Blocks until all ranks have ended and nothing of the job is left; returns the exit status.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { running, settling, stopping, killing };

  struct Rank {
    Child child;
    Fd log;
    LogJoiner joiner;
    LineTail tail;
    std::optional<RankEnd> end;
  };

  void wait_for_something();
  void take_endings();
  void take_signals();
  void read_output();
  void advance_phase();
  void check_writer();
  void finish();

  static bool is_cause(const RankEnd& end);
  std::optional<RankEnd> ending_of(int rank);
  void record(const RankEnd& end);
  void interrupt(int signal);
  void suspend();
  void begin_stopping(int signal);
  void kill_all();
  void signal_all(int signal);
  bool read_pipe(int rank, Stream stream);
  void write_log(int rank, std::string_view bytes);
  void reap();
  void report();
  void flush();
  int timeout_ms() const;
  int status() const;
  std::vector<int> running_ranks() const;

  const LaunchOptions options_;
  const Clock::time_point start_ = Clock::now();
  const std::optional<std::int64_t> memory_kills_before_;
  Guard& guard_;
  SignalInbox& signals_;

  std::vector<Rank> ranks_;
  OutputMixer mixer_;
  OutputWriter writer_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> phase_end_;
  int interrupted_by_ = 0;     // the signal that ends the job
  bool reader_gone_ = false;   // of standard output, which ends it as SIGPIPE would
  std::vector<int> failures_;  // ranks, first cause first
  std::vector<int> stopped_;   // ranks that ended because the launcher made them
  std::vector<int> killed_;    // ranks that got SIGKILL for not ending in time
};

}  // namespace lockstep
