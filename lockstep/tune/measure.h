// Measures what messages and memory cost on this machine, in the terms of plan/cost.h.
#pragma once

#include "lockstep/plan/cost.h"

namespace lockstep {

// Starts a second process, and measures between it and this one: messages over loopback TCP,
// barriers in shared memory; and copying and adding here. Takes a few seconds; nothing of it
// stays. The process must have no other threads. Throws Error when the two cannot meet.
Prices measure_prices();

}  // namespace lockstep
