#include "lockstep/plan/symbols.h"

#include <algorithm>

#include "lockstep/plan/order.h"

namespace lockstep {

namespace {

Symbol mix(Symbol x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Symbols::Symbols(const std::vector<Shape>& shapes, Order order)
    : shapes_(shapes), operation_(shapes[0].operation), order_(order) {
  const int ranks = static_cast<int>(shapes.size());
  const bool all_to_all = operation_ == Operation::all_to_all;
  for (const Shape& shape : shapes) {
    longest_ = std::max({longest_, data_count(shape) + 1, input_count(shape) + 1});
    if (all_to_all || outgoing_.empty()) outgoing_.emplace_back(ranks, shape.count, shape.counts);
    if (all_to_all) incoming_.emplace_back(ranks, shape.count, shape.receive_counts);
  }
}

Symbol Symbols::contribution(int round, int rank, std::int64_t element) const {
  const auto ranks = static_cast<std::int64_t>(shapes_.size());
  return mix(static_cast<Symbol>((round * ranks + rank) * longest_ + element));
}

bool Symbols::contributes_data() const {
  return operation_ == Operation::all_reduce || operation_ == Operation::reduce ||
         operation_ == Operation::broadcast;
}

Symbol Symbols::merged(Symbol left, Symbol right) const {
  return order_ == Order::any ? left + right : mix(mix(left) + 3 * right);
}

Symbol Symbols::finished(Symbol sum) {
  return mix(sum ^ 0x5bd1e995f1a15ed);
}

const std::vector<Symbol>& Symbols::sums(int round) {
  const auto index = static_cast<std::size_t>(round);
  if (sums_.size() <= index) sums_.resize(index + 1);
  std::vector<Symbol>& sums = sums_[index];
  if (!sums.empty()) return sums;
  const int ranks = static_cast<int>(shapes_.size());
  const std::int64_t count = contributes_data() ? data_count(shapes_[0]) : outgoing_[0].total();
  std::vector<Symbol> column(shapes_.size());
  for (std::int64_t element = 0; element < count; ++element) {
    Merger merger([&](std::size_t a, std::size_t b) { column[a] = merged(column[a], column[b]); });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      column[at] = contribution(round, rank, element);
      merger.push(at, 0);
    }
    sums.push_back(finished(column[merger.finish()]));
  }
  return sums;
}

std::vector<Symbol> Symbols::expected(int round, int rank) {
  const Shape& shape = shapes_[static_cast<std::size_t>(rank)];
  std::vector<Symbol> values;
  // Elements that `from` contributes, from its `begin` on.
  const auto take = [&](int from, std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(contribution(round, from, begin + i));
  };
  switch (operation_) {
    case Operation::all_reduce:
      return sums(round);
    case Operation::reduce:
      if (rank == shape.root) return sums(round);
      take(rank, 0, data_count(shape));
      break;
    case Operation::reduce_scatter: {
      const Range own = outgoing_[0][rank];
      const std::vector<Symbol>& all = sums(round);
      values.assign(all.begin() + own.begin, all.begin() + own.end());
      break;
    }
    case Operation::broadcast:
    case Operation::send:
      take(shape.root, 0, data_count(shape));
      break;
    case Operation::scatter:
      take(shape.root, outgoing_[0][rank].begin, data_count(shape));
      break;
    case Operation::all_gather:
    case Operation::gather: {
      const int ranks = data_count(shape) > 0 ? shape.ranks : 0;  // gather: root alone has data
      for (int from = 0; from < ranks; ++from) take(from, 0, outgoing_[0][from].count);
      break;
    }
    case Operation::all_to_all:
      for (int from = 0; from < shape.ranks; ++from) {
        const Parts& parts = outgoing_[static_cast<std::size_t>(from)];
        take(from, parts[rank].begin, incoming_[static_cast<std::size_t>(rank)][from].count);
      }
      break;
    case Operation::barrier:
      break;
  }
  return values;
}

}  // namespace lockstep
