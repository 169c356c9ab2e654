// What the parts of a plan cost on a machine, and what an algorithm would take there.
//
// The model is Hockney's, "The Communication Challenge for MPP", 1994 (a message takes a latency
// and its bytes), with the addition of work in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/plan/plan.h"

namespace lockstep {

// Measured by `lockstep tune`; the defaults are a virtual machine of 2026 over loopback TCP.
struct Prices {
  double latency_us = 15;                // from a send to its receive, for a byte
  double message_us = 3;                 // what a rank does for each message
  double byte_us = 1.0 / 2'000;          // per byte that a rank sends: 2 GB/s
  double reduced_byte_us = 1.0 / 8'000;  // per byte of a contribution that it adds
  double copied_byte_us = 1.0 / 8'000;   // per byte that it copies
  double barrier_us = 0.5;               // of the ranks of a host, once the last has come

  bool operator==(const Prices&) const = default;
};

double predict_us(const Cost& cost, std::int64_t element_bytes, const Prices& prices);

// The JSON text of a tuning file (docs/settings.md), and back. Throws Error(invalid_argument) that
// names the key which is unknown, missing, or not a number from 0 to 1e9.
std::string to_json(const Prices& prices);
Prices parse_prices(std::string_view json);

}  // namespace lockstep
