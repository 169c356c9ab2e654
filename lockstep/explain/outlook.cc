#include "lockstep/explain/outlook.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lockstep/explain/simulate.h"

namespace lockstep {

namespace {

// Ranks 0, 1, root, the last, and others evenly between them.
std::vector<int> some_ranks(int ranks, int root, std::int64_t wanted) {
  std::set<int> chosen = {0, std::min(1, ranks - 1), root, ranks - 1};
  for (std::int64_t i = 0; i < wanted; ++i) chosen.insert(static_cast<int>(i * ranks / wanted));
  return {chosen.begin(), chosen.end()};
}

}  // namespace

double Outlook::end_us() const {
  return us.empty() ? 0 : *std::ranges::max_element(us);
}

Outlook look_ahead(const Case& of, const Algorithm& algorithm, const Prices& prices,
                   std::int64_t steps_max) {
  Outlook outlook;
  const Plan first = algorithm.make(shape_of(of, algorithm, of.root));
  const auto steps = static_cast<std::int64_t>(first.steps.size() + first.locations.size() / 4);
  const std::int64_t affordable =
      std::max<std::int64_t>(8, steps_max / std::max<std::int64_t>(steps, 1));
  if (affordable >= of.ranks) {
    outlook.ranks.resize(static_cast<std::size_t>(of.ranks));
    std::iota(outlook.ranks.begin(), outlook.ranks.end(), 0);
  } else {
    outlook.ranks = some_ranks(of.ranks, of.root, affordable);
  }
  const bool all = static_cast<int>(outlook.ranks.size()) == of.ranks;
  Simulator simulator(shape_of(of, algorithm, 0), of.size(), prices, false);
  for (const int rank : outlook.ranks) {
    const Plan plan = algorithm.make(shape_of(of, algorithm, rank));
    outlook.tallies.push_back(tally(plan, of.size()));
    outlook.us.push_back(estimate_us(outlook.tallies.back(), prices));
    if (all) simulator.add(plan);
  }
  if (all && !simulator.too_large()) {
    outlook.us = simulator.run().end_us;
    outlook.simulated = true;
  }
  if (algorithm.cost != nullptr) {
    outlook.formula_us =
        predict_us(algorithm.cost(shape_of(of, algorithm, 0)), of.size().bytes, prices);
  }
  return outlook;
}

}  // namespace lockstep
