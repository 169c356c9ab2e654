// Who is where: the hosts of a shape, as hierarchical algorithms see them.
#pragma once

#include <vector>

#include "lockstep/plan/order.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

// Hosts are numbered in the order of their lowest ranks.
class Hosts {
 public:
  explicit Hosts(const Shape& shape);

  int count() const { return static_cast<int>(members_.size()); }
  int own() const { return own_; }
  int of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& members(int host) const {
    return members_[static_cast<std::size_t>(host)];
  }
  // The lowest rank of each host, and of this one.
  const std::vector<int>& leaders() const { return leaders_; }
  int leader() const { return leaders_[static_cast<std::size_t>(own_)]; }
  // Who on `host` deals with `rank`. A host's ranks share those elsewhere equally: none has more
  // than one more than another, however large the hosts are.
  int counterpart(int rank, int host) const;

 private:
  std::vector<int> host_of_;
  std::vector<int> place_of_;  // among all ranks, host by host
  std::vector<std::vector<int>> members_;
  std::vector<int> leaders_;
  int own_ = 0;
};

}  // namespace lockstep
