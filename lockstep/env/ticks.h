// Ticks: the cheapest count of time that this machine has, for stamps that are taken all the time
// and read almost never.
//
// Thread rule: free to use anywhere. On x86 with a constant time-stamp counter: that counter, a
// third of the cost of a clock. Elsewhere: nanoseconds of the steady clock.
#pragma once

#include <cstdint>

namespace lockstep {

std::int64_t ticks_now();

// Turns ticks into time since 1970. Taken once early, it knows the length of a tick the better the
// later it is asked.
class TickScale {
 public:
  TickScale();
  // For ticks taken between the construction of this scale and this call: exact to microseconds
  // and to the steps that somebody set the machine's clock by.
  class Now {
   public:
    std::int64_t unix_us(std::int64_t ticks) const;

   private:
    friend class TickScale;
    std::int64_t ticks_ = 0;
    std::int64_t unix_ns_ = 0;
    double ns_per_tick_ = 1;
  };
  Now now() const;

 private:
  const std::int64_t ticks_;
  const std::int64_t steady_ns_;
};

}  // namespace lockstep
