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

// How many ranks' plans have about so many steps, going by a few of them.
std::int64_t affordable_plans(const Case& of, const Algorithm& algorithm, std::int64_t steps_max) {
  const auto steps_of = [&](int rank) {
    const Plan plan = algorithm.make(shape_of(of, algorithm, rank));
    return static_cast<std::int64_t>(plan.steps.size() + plan.locations.size() / 4);
  };
  std::int64_t others = 1;
  for (const int rank : {0, of.ranks / 2, of.ranks - 1}) {
    if (rank != of.root) others = std::max(others, steps_of(rank));
  }
  const std::int64_t left = steps_max - steps_of(of.root);
  return std::max<std::int64_t>(8, left / others);
}

}  // namespace

double Outlook::end_us() const {
  return us.empty() ? 0 : *std::ranges::max_element(us);
}

Outlook look_ahead(const Case& of, const Algorithm& algorithm, const Prices& prices,
                   std::int64_t steps_max) {
  Outlook outlook;
  const std::int64_t affordable = affordable_plans(of, algorithm, steps_max);
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
