#include "lockstep/env/ticks.h"

#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace lockstep {

namespace {

template <class Clock>
std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

#if defined(__x86_64__)
bool has_constant_counter() {
  constexpr unsigned kLeaf = 0x80000007;  // advanced power management
  constexpr unsigned kInvariant = 1u << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(kLeaf, &a, &b, &c, &d) == 1 && (d & kInvariant) != 0;
}
#endif

}  // namespace

std::int64_t ticks_now() {
#if defined(__x86_64__)
  static const bool constant = has_constant_counter();
  if (constant) return static_cast<std::int64_t>(__rdtsc());
#endif
  return now_ns<std::chrono::steady_clock>();
}

TickScale::TickScale() : ticks_(ticks_now()), steady_ns_(now_ns<std::chrono::steady_clock>()) {}

TickScale::Now TickScale::now() const {
  Now now;
  now.ticks_ = ticks_now();
  now.unix_ns_ = now_ns<std::chrono::system_clock>();
  const std::int64_t passed_ns = now_ns<std::chrono::steady_clock>() - steady_ns_;
  if (now.ticks_ > ticks_) {
    now.ns_per_tick_ = static_cast<double>(passed_ns) / static_cast<double>(now.ticks_ - ticks_);
  }
  return now;
}

std::int64_t TickScale::Now::unix_us(std::int64_t ticks) const {
  const double ago_ns = static_cast<double>(ticks_ - ticks) * ns_per_tick_;
  return (unix_ns_ - static_cast<std::int64_t>(ago_ns)) / 1000;
}

}  // namespace lockstep
