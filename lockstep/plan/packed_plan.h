// PackedPlan: a plan in about a sixth of its memory, to be read from its beginning on. The plans of
// 4,096 ranks that all talk to each other fit into memory only so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep {

// A step with its locations. Of a step's fields those are set that its kind uses.
struct UnpackedStep {
  StepKind kind = StepKind::barrier;
  int peer = -1;
  std::int64_t messages = 0;
  std::uint32_t destination_count = 0;
  std::vector<Location> locations;  // destinations, then sources

  std::span<const Location> destinations() const { return {locations.data(), destination_count}; }
  std::span<const Location> sources() const {
    return std::span(locations).subspan(destination_count);
  }
};

class PackedPlan {
 public:
  explicit PackedPlan(const Plan& plan);

  const Needs& needs() const { return needs_; }
  std::int64_t scratch_count() const { return scratch_count_; }
  std::int64_t partial_count() const { return partial_count_; }
  std::size_t step_count() const { return step_count_; }

  // Reads the step at `position`, which is 0 for the first. Returns the position of the next one.
  std::size_t read(std::size_t position, UnpackedStep& step) const;

 private:
  Needs needs_;
  std::int64_t scratch_count_ = 0;
  std::int64_t partial_count_ = 0;
  std::size_t step_count_ = 0;
  // Per step: its kind; what the kind has of peer, messages, how many destinations and sources;
  // each location as its difference from the one before it in the step. Numbers are written seven
  // bits at a time, lowest first, the sign in the lowest bit; all bytes but the last have bit 7.
  std::vector<std::uint8_t> bytes_;
};

}  // namespace lockstep
