#include "lockstep/explain/provenance.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {

namespace {

// What stands where in one buffer: from each key on, up to the next.
class Contents {
 public:
  explicit Contents(Origin first) : runs_{{0, first}} {}

  Origin at(std::int64_t begin) const {
    const auto run = std::prev(runs_.upper_bound(begin));
    Origin origin = run->second;
    origin.begin += begin - run->first;
    return origin;
  }
  void set(Range range, Origin origin) {
    const Origin after = at(range.end());
    runs_.erase(runs_.lower_bound(range.begin), runs_.upper_bound(range.end()));
    runs_[range.begin] = origin;
    runs_[range.end()] = after;
  }

 private:
  std::map<std::int64_t, Origin> runs_;
};

// In order of time; at one time, what lands before what is worked on before what leaves.
struct Event {
  double at_us;
  int kind;
  std::size_t index;
  auto key() const { return std::tie(at_us, kind, index); }
};
constexpr int kLands = 0;
constexpr int kWorks = 1;
constexpr int kLeaves = 2;

Origin first_of(const Case& of, int rank, Space space) {
  const bool own_part = of.operation == Operation::all_gather || of.operation == Operation::gather;
  Origin origin;
  if (rank < 64) origin.ranks = std::uint64_t{1} << rank;
  if (space == Space::input && own_part) origin.begin = rank * of.count;
  return origin;
}

}  // namespace

Provenance follow(const Case& of, const std::vector<Plan>& plans, const Simulation& simulation) {
  std::vector<Contents> buffers;
  for (int rank = 0; rank < of.ranks; ++rank) {
    for (int space = 0; space < kSpaceCount; ++space) {
      buffers.emplace_back(first_of(of, rank, static_cast<Space>(space)));
    }
  }
  const auto buffer = [&](const Location& at) -> Contents& {
    return buffers[static_cast<std::size_t>(at.rank * kSpaceCount + static_cast<int>(at.space))];
  };
  std::vector<Event> events;
  const auto& flights = simulation.flights;
  for (std::size_t i = 0; i < flights.size(); ++i) {
    events.push_back({flights[i].begin_us, kLeaves, i});
    events.push_back({flights[i].landed_us, kLands, i});
  }
  for (std::size_t i = 0; i < simulation.activities.size(); ++i) {
    const Activity& activity = simulation.activities[i];
    if (activity.kind == StepKind::copy || activity.kind == StepKind::reduce) {
      events.push_back({activity.end_us, kWorks, i});
    }
  }
  std::ranges::sort(events, {}, [](const Event& event) { return event.key(); });
  Provenance found;
  found.flights.resize(flights.size());
  found.activities.resize(simulation.activities.size());
  for (const Event& event : events) {
    if (event.kind == kWorks) {
      const Activity& activity = simulation.activities[event.index];
      const Plan& plan = plans[static_cast<std::size_t>(activity.rank)];
      const Step& step = plan.steps[activity.step];
      Origin& origin = found.activities[event.index];
      const auto sources = plan.sources(step);
      origin.begin = buffer(sources[0]).at(sources[0].range.begin).begin;
      for (const Location& source : sources) {
        origin.ranks |= buffer(source).at(source.range.begin).ranks;
      }
      for (const Location& to : plan.destinations(step)) buffer(to).set(to.range, origin);
      continue;
    }
    const Flight& flight = flights[event.index];
    Origin& origin = found.flights[event.index];
    if (event.kind == kLeaves) {
      const Plan& plan = plans[static_cast<std::size_t>(flight.from)];
      const Location& source = plan.sources(plan.steps[flight.send_step])[0];
      origin = buffer(source).at(source.range.begin);
    } else {
      const Plan& plan = plans[static_cast<std::size_t>(flight.to)];
      const Location& to = plan.destinations(plan.steps[flight.receive_step])[0];
      if (to.range.count > 0) buffer(to).set(to.range, origin);
    }
  }
  return found;
}

}  // namespace lockstep
