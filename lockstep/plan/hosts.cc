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
    members.push_back(rank);
  }
  own_ = of(shape.rank);
  place_of_.resize(host_of_.size());
  int place = 0;
  for (const auto& members : members_) {
    for (const int rank : members) place_of_[static_cast<std::size_t>(rank)] = place++;
  }
}

int Hosts::counterpart(int rank, int host) const {
  const auto& there = members(host);
  return there[static_cast<std::size_t>(place_of_[static_cast<std::size_t>(rank)]) % there.size()];
}

}  // namespace lockstep
