#include "lockstep/plan/order.h"

namespace lockstep {

std::vector<Block> blocks_of(const std::vector<int>& members, int ranks) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < members.size();) {
    const int begin = members[i];
    std::size_t run = i;  // members[i..run] are neighbours
    while (run + 1 < members.size() && members[run + 1] == members[run] + 1) ++run;
    const int end = members[run] + 1;
    Block block{begin, begin + 1, 0};
    // The largest aligned block that begins here and has no rank outside the run.
    for (int level = 1; begin % (1 << level) == 0 && (1 << (level - 1)) < ranks; ++level) {
      const int last = begin + (1 << level);
      if (last > end && end != ranks) break;
      block = {begin, last < ranks ? last : ranks, static_cast<std::uint8_t>(level)};
      if (last >= end) break;
    }
    blocks.push_back(block);
    i += static_cast<std::size_t>(block.end - block.begin);
  }
  return blocks;
}

}  // namespace lockstep
