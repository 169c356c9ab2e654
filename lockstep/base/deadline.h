// A point in time that a chain of waits shares, so that each waits only what remains.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) {
    return Deadline(Clock::now(), Clock::now() + duration);
  }

  bool passed() const { return Clock::now() >= end_; }
  // Milliseconds left, rounded up, never negative.
  int remaining_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1'000'000'000));
  }
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  Deadline(Clock::time_point start, Clock::time_point end) : start_(start), end_(end) {}
  Clock::time_point start_;
  Clock::time_point end_;
};

}  // namespace lockstep
