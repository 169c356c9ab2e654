#include "lockstep/plan/plan.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep {

std::string_view to_string(Operation operation) {
  constexpr std::string_view kNames[] = {
      "all_reduce",     "broadcast", "all_gather", "barrier",    "reduce",
      "reduce_scatter", "gather",    "scatter",    "all_to_all", "send"};
  static_assert(std::size(kNames) == kOperationCount);
  const auto index = static_cast<std::size_t>(operation);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

std::string_view to_string(StepKind kind) {
  constexpr std::string_view kNames[] = {"copy",    "reduce", "barrier", "send",
                                         "receive", "wait",   "flush"};
  return kNames[static_cast<int>(kind)];
}

std::string to_string(const Needs& needs) {
  std::string text;
  const auto add = [&](bool needed, const char* what) {
    if (needed) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(needs.shared_data, "shared data");
  add(needs.shared_input, "shared input");
  add(needs.shared_scratch, "shared scratch");
  add(needs.messages, "messages");
  return text.empty() ? "nothing" : text;
}

Parts::Parts(int ranks, std::int64_t count, std::span<const std::int64_t> counts) {
  LOCKSTEP_CHECK(counts.empty() || static_cast<int>(counts.size()) == ranks);
  begins_.reserve(static_cast<std::size_t>(ranks) + 1);
  begins_.push_back(0);
  for (int rank = 0; rank < ranks; ++rank) {
    begins_.push_back(begins_.back() +
                      (counts.empty() ? count : counts[static_cast<std::size_t>(rank)]));
  }
}

std::int64_t Parts::longest() const {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < begins_.size(); ++i) {
    longest = std::max(longest, begins_[i] - begins_[i - 1]);
  }
  return longest;
}

namespace {

std::int64_t own_count(const Shape& shape) {
  return shape.counts.empty() ? shape.count : shape.counts[static_cast<std::size_t>(shape.rank)];
}

std::int64_t whole_count(const Shape& shape, std::span<const std::int64_t> counts) {
  if (counts.empty()) return shape.count * shape.ranks;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

}  // namespace

std::int64_t data_count(const Shape& shape) {
  switch (shape.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::broadcast:
      return shape.count;
    case Operation::all_gather:
      return whole_count(shape, shape.counts);
    case Operation::gather:
      return shape.rank == shape.root ? whole_count(shape, shape.counts) : 0;
    case Operation::scatter:
    case Operation::reduce_scatter:
      return own_count(shape);
    case Operation::all_to_all:
      return whole_count(shape, shape.receive_counts);
    case Operation::send:
      return shape.rank == shape.root ? 0 : shape.count;
    case Operation::barrier:
      break;
  }
  return 0;
}

std::int64_t input_count(const Shape& shape) {
  switch (shape.operation) {
    case Operation::all_gather:
    case Operation::gather:
      return own_count(shape);
    case Operation::scatter:
      return shape.rank == shape.root ? whole_count(shape, shape.counts) : 0;
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return whole_count(shape, shape.counts);
    case Operation::send:
      return shape.rank == shape.root ? shape.count : 0;
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::broadcast:
    case Operation::barrier:
      break;
  }
  return 0;
}

}  // namespace lockstep
