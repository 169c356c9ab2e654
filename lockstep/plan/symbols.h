// Symbols: what stands for the values of elements while plans are executed in a proof (checker.h).
//
// A symbol is a hash of how its value came about: equal symbols, equal values, but for a chance of
// 2^-64.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep {

using Symbol = std::uint64_t;
inline constexpr Symbol kUndefined = 0;

// The symbols of one operation, repeated in rounds with new contents each. Not thread-safe.
class Symbols {
 public:
  // `shapes` by rank; they must outlive this.
  Symbols(const std::vector<Shape>& shapes, Order order);

  // An element of what a rank contributes: of its data where contributes_data(), else of its input.
  Symbol contribution(int round, int rank, std::int64_t element) const;
  bool contributes_data() const;

  // A sum of two, and what becomes of a sum of all when it is written as a value.
  Symbol merged(Symbol left, Symbol right) const;
  static Symbol finished(Symbol sum);

  // What the data of a rank must be when the operation has ended.
  std::vector<Symbol> expected(int round, int rank);

 private:
  // Every element, added up over all ranks and finished. Computed once a round.
  const std::vector<Symbol>& sums(int round);

  const std::vector<Shape>& shapes_;
  const Operation operation_;
  const Order order_;
  std::int64_t longest_ = 1;               // more than any buffer has elements
  std::vector<Parts> outgoing_;            // all_to_all: by rank; else one for all
  std::vector<Parts> incoming_;            // all_to_all: by rank
  std::vector<std::vector<Symbol>> sums_;  // by round
};

}  // namespace lockstep
