// Stalls: notices that the operation under way has not moved for a while, once, and that it goes
// on.
//
//            nothing moved for `after`
//   moving ────────────────────────────▶ stalled
//      ▲                                    │
//      └────────────────────────────────────┘ something moved, or another operation is under way
//
// Thread rule: the engine's driver alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/engine/execution.h"
#include "lockstep/engine/fabric.h"

namespace lockstep {

class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Event { none, stalled, goes_on };

  explicit StallWatch(std::chrono::milliseconds after, Clock::time_point (*now)() = Clock::now)
      : after_(after), now_(now) {}

  // What is seen now: which operation is under way, and a number that changes when it moves. Costs
  // no look at the clock when it has moved: time counts from the first look that sees no move.
  Event look(std::uint64_t operation, std::uint64_t mark);
  // The operation is complete; true when that ends a stall.
  bool complete() {
    watching_ = false;
    return stalled_ && end_stall();
  }

  // How long nothing has moved, or (after goes_on or complete) had not.
  double stalled_s() const { return stalled_s_; }
  // For waits: until look() may have something to say.
  int remaining_ms() const;

 private:
  bool end_stall();

  const std::chrono::milliseconds after_;
  Clock::time_point (*const now_)();
  bool watching_ = false;  // an operation is under way
  bool stalled_ = false;
  std::uint64_t operation_ = 0;
  std::uint64_t mark_ = 0;
  std::optional<Clock::time_point> since_;
  double stalled_s_ = 0;
};

// For whom `execution` waits and, where their place in the arena tells, what they are doing:
// "rank 1, which has not come to it (its last: barrier number 11)".
std::string waits_for(const Execution& execution, const Fabric& fabric);

}  // namespace lockstep
