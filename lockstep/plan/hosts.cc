#include "lockstep/plan/hosts.h"

#include <unordered_map>

namespace lockstep {

Hosts::Hosts(const Shape& shape) {
  std::unordered_map<int, int> numbers;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const auto [entry, fresh] = numbers.try_emplace(shape.host_of(rank), count());
    if (fresh) {
      members_.emplace_back();
      leaders_.push_back(rank);
    }
    auto& members = members_[static_cast<std::size_t>(entry->second)];
    host_of_.push_back(entry->second);
    index_of_.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
  own_ = of(shape.rank);
}

int Hosts::counterpart(int rank, int host) const {
  const auto& there = members(host);
  // Smaller hosts take turns in where they begin, or the first rank here would deal with all of
  // them. Hosts of one size pair up.
  const int begin = members(of(rank)).size() < there.size() ? of(rank) : 0;
  const int turn = begin + index_of_[static_cast<std::size_t>(rank)];
  return there[static_cast<std::size_t>(turn) % there.size()];
}

}  // namespace lockstep
