#include "lockstep/explain/candidates.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

// Steps looked at for one candidate: all candidates of 4,096 ranks within seconds.
constexpr std::int64_t kStepsMax = 8'000'000;

Reach reach_of(bool one_host, bool shares, bool in_arena) {
  Reach reach;
  reach.one_host = one_host;
  reach.shared_data = reach.shared_input = shares && in_arena;
  reach.shared_scratch = shares;
  reach.messages = !one_host;
  return reach;
}

void add_pair(std::vector<Situation>& all, int ranks, int hosts) {
  const std::string where = hosts == 1 ? "one host" : fmt::format("{} hosts", hosts);
  for (const bool in_arena : {true, false}) {
    all.push_back({where + (in_arena ? ", tensor in the arena" : ", tensor of the user's own"),
                   blocks_of_ranks(ranks, hosts), reach_of(hosts == 1, true, in_arena)});
  }
}

}  // namespace

std::vector<Situation> situations(int ranks, int hosts) {
  std::vector<Situation> all;
  if (hosts == 0 || (hosts == 1 && ranks > 1)) add_pair(all, ranks, 1);
  if (hosts == 0 && ranks > 2) add_pair(all, ranks, 2);
  if (hosts > 1 && hosts < ranks) add_pair(all, ranks, hosts);
  if (ranks > 1 && (hosts == 0 || hosts == ranks)) {
    all.push_back({"each rank on a host of its own", blocks_of_ranks(ranks, ranks),
                   reach_of(false, false, false)});
  }
  if (all.empty()) add_pair(all, ranks, 1);
  return all;
}

Candidates compare(const Case& of, int hosts, const Prices& prices, Order order) {
  Candidates candidates;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.operation != of.operation) continue;
    Candidate& candidate = candidates.all.emplace_back();
    candidate.algorithm = &algorithm;
    candidate.hosts =
        hosts == 0 ? usual_hosts(of.ranks, algorithm.needs) : blocks_of_ranks(of.ranks, hosts);
    Case here = of;
    here.hosts = candidate.hosts;
    try {
      require_plans(here, algorithm);
      candidate.outlook = look_ahead(here, algorithm, prices, kStepsMax);
    } catch (const Error& error) {
      candidate.refusal = error.what();
    }
  }
  for (const Situation& situation : situations(of.ranks, hosts)) {
    Case here = of;
    here.hosts = situation.hosts;
    const Shape shape = shape_to_choose(here);
    candidates.choices.push_back({situation.name, choose(shape, of.size().bytes, situation.reach,
                                                         prices, {.forced = {}, .order = order})});
  }
  return candidates;
}

}  // namespace lockstep
