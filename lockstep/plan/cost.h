// What the parts of a plan cost on a machine, and what an algorithm would take there.
//
// The model is Hockney's, "The Communication Challenge for MPP", 1994 (a message takes a latency
// and its bytes), with the addition of arithmetic.
#pragma once

#include <cstdint>

#include "lockstep/plan/plan.h"

namespace lockstep {

// Measured by `lockstep tune`; the defaults are a virtual machine of 2026 over loopback TCP.
struct Prices {
  double latency_us = 15;                // from a send to its receive, for a byte
  double message_us = 3;                 // what a rank does for each message
  double byte_us = 1.0 / 2'000;          // per byte that a rank sends: 2 GB/s
  double reduced_byte_us = 1.0 / 8'000;  // per byte of a contribution that it adds
};

double predict_us(const Cost& cost, std::int64_t element_bytes, const Prices& prices);

}  // namespace lockstep
