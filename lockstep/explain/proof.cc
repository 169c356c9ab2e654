#include "lockstep/explain/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

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
    weight += 2 * static_cast<double>(data_count(one));  // what it should be, too
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
  if (shape.count == 0) return fmt::format("{} ranks", shape.ranks);
  return fmt::format("{} ranks, {} element{} in {} chunk{}", shape.ranks, shape.count,
                     shape.count == 1 ? "" : "s", chunks, chunks == 1 ? "" : "s");
}

std::string claims(Operation operation, const Algorithm& algorithm, bool twice) {
  const bool reduces = operation == Operation::all_reduce || operation == Operation::reduce ||
                       operation == Operation::reduce_scatter;
  std::string text = operation == Operation::barrier ? "nobody leaves before all have come"
                                                     : "every result is exact";
  if (reduces && algorithm.order == Order::canonical) text += ", added in canonical order";
  return text + ", every message is met, no race, no deadlock, all inside the buffers" +
         (twice ? ", for three operations in a row" : "");
}

// Sends are between two ranks whose shapes differ.
std::optional<std::string> check(const Algorithm& algorithm, const Shape& shape) {
  std::vector<Shape> shapes = shapes_of(shape);
  for (Shape& one : shapes) {
    one.peer = one.rank == one.root ? (one.root + 1) % one.ranks : one.root;
  }
  return check_plan(algorithm, shapes);
}

}  // namespace

Proof prove(const Case& of, const Algorithm& algorithm) {
  const Shape whole = shape_of(of, algorithm, 0);
  std::deque<StandIn> chosen;
  const auto take = [&](int ranks, std::int64_t chunk_count) {
    StandIn& one = chosen.emplace_back(stand_in(of, algorithm, ranks, chunk_count));
    one.shape.hosts = one.hosts;
    const bool accepted = algorithm.accepts == nullptr || algorithm.accepts(one.shape);
    const bool fits = accepted && weight_of(algorithm, one.shape) <= kWeightMax;
    if (!fits) chosen.pop_back();
    return fits;
  };
  // Enough for a slice of every rank; a part needs fewer.
  const auto slices_of = [&](int ranks) {
    return has_parts(of.operation) ? std::int64_t{5} : 2L * ranks + 1;
  };
  constexpr std::int64_t kExactCountMax = 1 << 16;
  const bool exact = whole.count <= kExactCountMax && take(of.ranks, whole.chunk_count);
  const bool whole_ranks = exact || take(of.ranks, slices_of(of.ranks));
  if (!whole_ranks) take(of.ranks, 1);
  // Beside many ranks, so few that the proof is full.
  if (!whole_ranks || of.ranks > kFullProofRanksMax) {
    for (const int ranks : {kFullProofRanksMax, 128, 64, 16, 2}) {
      if (ranks < of.ranks && take(ranks, slices_of(ranks))) break;
    }
  }
  Proof proof;
  std::string sizes_of_all;
  bool full = false;
  for (const StandIn& one : chosen) {
    if (!proof.problem) proof.problem = check(algorithm, one.shape);
    sizes_of_all += (sizes_of_all.empty() ? "" : "; ") + sizes(one.shape);
    full = full || one.shape.ranks <= kFullProofRanksMax;
  }
  proof.what = sizes_of_all + ": " + claims(of.operation, algorithm, full);
  if (!exact && (!whole_ranks || chosen.front().shape.count != whole.count)) {
    proof.left_out = sizes(whole) + " as such, too much for a proof on symbols";
  }
  if (of.ranks > kFullProofRanksMax) {
    proof.left_out +=
        fmt::format("{}whether anything is overwritten that is still being sent, above {} ranks",
                    proof.left_out.empty() ? "" : "; ", kFullProofRanksMax);
  }
  return proof;
}

}  // namespace lockstep
