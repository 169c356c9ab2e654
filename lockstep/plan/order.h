// The canonical order of addition: a balanced tree over rank numbers.
//
// Ranks 2i and 2i+1 are added first, then blocks of two, of four …; the block at the right edge may
// be ragged or missing. So the result does not depend on transport, host, algorithm or bucket size,
// and still log N algorithms and reductions inside a host can work on whole blocks. (It also rounds
// less than adding one after the other: the error grows with log N. Higham, "The Accuracy of
// Floating Point Summation", 1993.)
//
// Values that stand for blocks are merged from left to right like a binary counter: two neighbours
// of one level become one of the next; at the end the rest is merged from the right.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

// Ranks [begin, end), an aligned block of 2^level ranks as far as there are so many.
struct Block {
  int begin = 0;
  int end = 0;
  std::uint8_t level = 0;
};

// The fewest blocks that make up `members` (ascending), in order.
std::vector<Block> blocks_of(const std::vector<int>& members, int ranks);

// Merges values of the given levels in canonical order: calls merge(left, right) for indices of
// values; the result stands at left. `Levels` is any sequence of levels, ascending in rank.
template <class Merge>
class Merger {
 public:
  explicit Merger(Merge merge) : merge_(std::move(merge)) {}

  void push(std::size_t value, std::uint8_t level) {
    stack_.push_back({value, level});
    while (stack_.size() > 1 && stack_[stack_.size() - 2].level == stack_.back().level) join();
  }
  // The index of the value that holds everything.
  std::size_t finish() {
    while (stack_.size() > 1) join();
    return stack_.back().value;
  }

 private:
  struct Entry {
    std::size_t value;
    std::uint8_t level;
  };
  void join() {
    const Entry right = stack_.back();
    stack_.pop_back();
    merge_(stack_.back().value, right.value);
    ++stack_.back().level;
  }

  Merge merge_;
  std::vector<Entry> stack_;
};

}  // namespace lockstep
