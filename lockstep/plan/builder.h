// How algorithm files write their steps down.
#pragma once

#include <utility>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep {

// Appends the steps of one rank. Empty ranges are left out of copies and reductions, never out of
// messages and barriers, so that both ends of those always agree.
class PlanBuilder {
 public:
  PlanBuilder(std::string_view algorithm, const Needs& needs, const Shape& shape)
      : rank_(shape.rank) {
    plan_.algorithm = algorithm;
    plan_.needs = needs;
  }

  Location data(int rank, Range range) const { return {rank, Space::data, 0, range}; }
  Location data(Range range) const { return data(rank_, range); }
  Location input(int rank, Range range) const { return {rank, Space::input, 0, range}; }
  Location input(Range range) const { return input(rank_, range); }
  Location scratch(int rank, Range range) const { return {rank, Space::scratch, 0, range}; }
  Location scratch(Range range) const { return scratch(rank_, range); }
  Location partial(Range range) const { return {rank_, Space::partial, 0, range}; }

  void scratch_count(std::int64_t count) { plan_.scratch_count = count; }
  void partial_count(std::int64_t count) { plan_.partial_count = count; }
  void copy(Location destination, Location source) {
    if (source.range.count > 0) add(StepKind::copy, -1, 0, {&destination, 1}, {&source, 1});
  }
  void reduce(const std::vector<Location>& destinations, const std::vector<Location>& sources) {
    if (sources[0].range.count > 0) add(StepKind::reduce, -1, 0, destinations, sources);
  }
  void barrier() {
    add(StepKind::barrier, -1, 0, {}, {});
    ++plan_.barriers;
  }
  void send(int peer, Location source) {
    add(StepKind::send, peer, 0, {}, {&source, 1});
    ++sends_;
  }
  void receive(int peer, Location destination) {
    add(StepKind::receive, peer, 0, {&destination, 1}, {});
    ++receives_;
  }
  // Receives asked for so far: what wait() takes.
  std::int64_t receives() const { return receives_; }
  void wait(std::int64_t receives) { add(StepKind::wait, -1, receives, {}, {}); }
  void wait_all() { wait(receives_); }
  // The same for sends and flush().
  std::int64_t sends() const { return sends_; }
  void flush(std::int64_t sends) {
    if (sends > 0) add(StepKind::flush, -1, sends, {}, {});
  }

  // Of a plan that goes on for `chunks` chunks, the first is there: makes room for the others.
  void expect(std::int64_t chunks) {
    plan_.steps.reserve(plan_.steps.size() * static_cast<std::size_t>(chunks + 1));
    plan_.locations.reserve(plan_.locations.size() * static_cast<std::size_t>(chunks + 1));
  }

  Plan take() { return std::move(plan_); }

 private:
  void add(StepKind kind, int peer, std::int64_t messages, std::span<const Location> destinations,
           std::span<const Location> sources) {
    plan_.steps.push_back({kind, static_cast<std::uint32_t>(destinations.size()),
                           static_cast<std::uint32_t>(sources.size()), peer, plan_.locations.size(),
                           messages});
    plan_.locations.insert(plan_.locations.end(), destinations.begin(), destinations.end());
    plan_.locations.insert(plan_.locations.end(), sources.begin(), sources.end());
  }

  const int rank_;
  std::int64_t receives_ = 0;
  std::int64_t sends_ = 0;
  Plan plan_;
};

// A value that is the sum of a block of ranks.
inline Location at_level(Location location, int level) {
  location.level = static_cast<std::uint8_t>(level);
  return location;
}

}  // namespace lockstep
