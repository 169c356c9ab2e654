// Tally: what a plan makes its rank do, added up.
#pragma once

#include <cstdint>

#include "lockstep/plan/cost.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

// Bytes of an element, of a sum that is not finished, and so of every range of a plan.
struct ElementSize {
  std::int64_t bytes = 4;
  std::int64_t partial_bytes = 4;

  std::int64_t of(const Location& at) const {
    return at.range.count * (at.space == Space::partial ? partial_bytes : bytes);
  }
};

struct Tally {
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::int64_t bytes_reduced = 0;  // of all contributions
  std::int64_t bytes_copied = 0;   // by copies, and by reductions to all destinations but the first
  std::int64_t copies = 0;
  std::int64_t reductions = 0;
  std::int64_t barriers = 0;
  std::int64_t waits = 0;  // that need messages no earlier wait did

  bool operator==(const Tally&) const = default;
};

Tally tally(const Plan& plan, const ElementSize& size);

// What one copy or reduction takes; 0 for other steps.
double work_us(const Plan& plan, const Step& step, const ElementSize& size, const Prices& prices);

// A rank's own work, and a latency for every wait: exact when all ranks do the same at the same
// time.
double estimate_us(const Tally& tally, const Prices& prices);

}  // namespace lockstep
