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
  PlanBuilder(std::string_view algorithm, Needs needs, const Shape& shape) : rank_(shape.rank) {
    plan_.algorithm = algorithm;
    plan_.needs = needs;
  }

  Location data(int rank, Range range) const { return {rank, Space::data, range}; }
  Location data(Range range) const { return {rank_, Space::data, range}; }
  Location input(Range range) const { return {rank_, Space::input, range}; }
  Location scratch(int rank, Range range) const { return {rank, Space::scratch, range}; }
  Location scratch(Range range) const { return {rank_, Space::scratch, range}; }

  void scratch_count(std::int64_t count) { plan_.scratch_count = count; }
  void copy(Location destination, Location source) {
    if (source.range.count > 0) add({StepKind::copy, -1, 0, {destination}, {source}});
  }
  void reduce(std::vector<Location> destinations, std::vector<Location> sources) {
    if (sources[0].range.count == 0) return;
    add({StepKind::reduce, -1, 0, std::move(destinations), std::move(sources)});
  }
  void barrier() { add({}); }
  void send(int peer, Location source) { add({StepKind::send, peer, 0, {}, {source}}); }
  void receive(int peer, Location destination) {
    add({StepKind::receive, peer, 0, {destination}, {}});
    ++receives_;
  }
  // Receives asked for so far: what wait() takes.
  std::int64_t receives() const { return receives_; }
  void wait(std::int64_t receives) { add({StepKind::wait, -1, receives, {}, {}}); }

  Plan take() { return std::move(plan_); }

 private:
  void add(Step step) { plan_.steps.push_back(std::move(step)); }

  const int rank_;
  std::int64_t receives_ = 0;
  Plan plan_;
};

}  // namespace lockstep
