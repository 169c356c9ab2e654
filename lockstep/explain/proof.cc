#include "lockstep/explain/proof.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/plan/checker.h"

namespace lockstep {

namespace {

// What a proof may take, in elements touched: some seconds.
constexpr double kWeightMax = 4e7;

struct StandIn {
  std::vector<int> hosts;
  Shape shape;
};

// The elements that a proof of `shape` touches, roughly.
double weight_of(const Algorithm& algorithm, const Shape& shape) {
  double heaviest = 0;
  const double ranks = shape.ranks;
  for (const int rank : {0, shape.root, shape.ranks - 1}) {
    Shape one = shape;
    one.rank = rank;
    const Plan plan = algorithm.make(one);
    double weight = static_cast<double>(plan.steps.size() + plan.locations.size());
    for (const Location& at : plan.locations) weight += static_cast<double>(at.range.count);
    double messages = 0;
    for (const Step& step : plan.steps) messages += step.kind == StepKind::send ? 1 : 0;
    const bool clocks = shape.ranks <= kFullProofRanksMax;
    weight += clocks ? messages * ranks : 0;
    weight += static_cast<double>(plan.scratch_count + plan.partial_count + input_count(one));
    // What an element should be is added up from, or looked for in, the parts of all ranks.
    weight += static_cast<double>(data_count(one)) * ranks;
    heaviest = std::max(heaviest, weight);
  }
  return heaviest * ranks;
}

// `ranks` ranks in place of more, and `chunk_count` elements in place of a chunk.
StandIn stand_in(const Case& of, const Algorithm& algorithm, int ranks, std::int64_t chunk_count) {
  StandIn small;
  small.shape = shape_of(of, algorithm, 0);
  Shape& shape = small.shape;
  if (ranks < of.ranks) {
    const int hosts = of.hosts.empty() ? 1 : of.hosts.back() + 1;
    const int fewer = std::max(std::min(hosts, 2), hosts * ranks / of.ranks);
    if (!of.hosts.empty()) small.hosts = blocks_of_ranks(ranks, fewer);
    shape.ranks = ranks;
    shape.root = of.root == 0 ? 0 : std::clamp(of.root * ranks / of.ranks, 1, ranks - 1);
  } else {
    small.hosts = of.hosts;
  }
  if (chunk_count < shape.chunk_count) {
    const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
    const std::int64_t enough = chunks <= 1   ? chunk_count
                                : chunks == 2 ? 2 * chunk_count
                                              : 2 * chunk_count + 1;
    shape.count = std::min(shape.count, enough);
    shape.chunk_count = chunk_count;
    shape.align_count = 1;
  }
  return small;
}

std::string sizes(const Shape& shape) {
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  return fmt::format("{} ranks, {} elements in {} chunk{}", shape.ranks, shape.count, chunks,
                     chunks == 1 ? "" : "s");
}

// Sends are between two ranks whose shapes differ.
std::optional<std::string> check(const Algorithm& algorithm, const Shape& shape) {
  std::vector<Shape> shapes = shapes_of(shape);
  std::vector<Plan> plans;
  for (Shape& one : shapes) {
    one.peer = one.rank == one.root ? (one.root + 1) % one.ranks : one.root;
    plans.push_back(algorithm.make(one));
  }
  return check_plans(plans, shapes, algorithm.order);
}

}  // namespace

Proof prove(const Case& of, const Algorithm& algorithm) {
  const Shape whole = shape_of(of, algorithm, 0);
  StandIn chosen;
  const auto fits = [&](int ranks, std::int64_t chunk_count) {
    chosen = stand_in(of, algorithm, ranks, chunk_count);
    chosen.shape.hosts = chosen.hosts;
    return weight_of(algorithm, chosen.shape) <= kWeightMax;
  };
  bool found = whole.count <= (1 << 16) && fits(of.ranks, whole.chunk_count);
  for (const int ranks : {of.ranks, 256, 128, 64, 16, 2}) {
    if (found || ranks > of.ranks) continue;
    for (const std::int64_t chunk_count : {2L * ranks + 1, 17L, 5L, 3L, 1L}) {
      found = found || fits(ranks, chunk_count);
    }
  }
  Proof proof;
  proof.problem = check(algorithm, chosen.shape);
  const bool small = chosen.shape.ranks != whole.ranks || chosen.shape.count != whole.count;
  const bool full = chosen.shape.ranks <= kFullProofRanksMax;
  proof.what = fmt::format(
      "{}: every result exact{}, every message met, no race, no deadlock, buffers kept{}",
      sizes(chosen.shape), algorithm.order == Order::canonical ? ", added in canonical order" : "",
      full ? ", for two operations in a row" : "");
  if (small) {
    proof.left_out =
        fmt::format("a stand-in for {}, which are too many for a proof on symbols", sizes(whole));
  }
  if (!full) {
    proof.left_out +=
        fmt::format("{}above {} ranks: whether anything is overwritten that is still being sent",
                    proof.left_out.empty() ? "" : "; ", kFullProofRanksMax);
  }
  return proof;
}

}  // namespace lockstep
