// RunnerTrial: finds out who should move the buckets while backward computes.
//
// With a core to spare the progress thread overlaps them with backward; where every core computes
// it only takes the core away, and the thread in backward does better to reduce a bucket itself
// while it is still in its cache. What pays on this machine, with this model, is measured: passes
// 2 to 9 go by turns one way and the other.
//
// Thread rule: that of the Reducer.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

class RunnerTrial {
 public:
  RunnerTrial(Group& group, bool enabled)
      : group_(group), over_(!enabled || group.size() == 1), usual_(group.runner()) {}

  // Before pass `pass`, which is 0 for the first.
  void begin(std::int64_t pass);
  // Collective. After it: how long it took, from its first gradient to its last result.
  void end(std::int64_t pass, double pass_ms);
  std::optional<Runner> chosen() const { return chosen_; }

 private:
  static constexpr std::int64_t kFirstPass = 1;
  static constexpr std::int64_t kPassesEach = 4;

  Runner runner_of(std::int64_t pass) const;

  Group& group_;
  bool over_;
  const Runner usual_;
  std::array<std::vector<double>, 2> pass_ms_;  // the usual runner's, the other's
  std::optional<Runner> chosen_;
};

}  // namespace lockstep
