// Outlook: what an algorithm would do and take in one case, without a network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/explain/case.h"
#include "lockstep/explain/tally.h"
#include "lockstep/plan/cost.h"

namespace lockstep {

struct Outlook {
  std::vector<int> ranks;      // whose plans were made: all, or an even choice where that is long
  std::vector<Tally> tallies;  // theirs
  std::vector<double> us;      // when each of them would end
  bool simulated = false;      // else estimated, each rank by itself
  std::optional<double> formula_us;  // what the table goes by

  double end_us() const;
};

// Makes at most about `steps_max` steps.
Outlook look_ahead(const Case& of, const Algorithm& algorithm, const Prices& prices,
                   std::int64_t steps_max = 20'000'000);

}  // namespace lockstep
