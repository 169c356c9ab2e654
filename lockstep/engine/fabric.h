// What the ranks of a group are connected by, as the engine sees it.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/transport/arena.h"
#include "lockstep/transport/link.h"

namespace lockstep {

// Memory that every rank of a group has a block of; those of this host are mapped here.
struct SharedRegion {
  std::uint64_t id = 0;  // the same on all ranks
  std::size_t bytes = 0;
  std::vector<std::byte*> by_rank;  // null for ranks of other hosts
};

// Owns nothing.
struct Fabric {
  int rank = 0;
  int ranks = 1;
  std::vector<int> hosts;         // by rank: equal numbers share an arena
  std::vector<int> local;         // the ranks of this host, ascending; their indices in the arena
  Arena* arena = nullptr;         // of this host's ranks; null when this rank is alone on its host
  std::size_t scratch_bytes = 0;  // of each rank in its arena; the same on all hosts
  std::vector<Link*> links;       // by rank; null for this rank, and for all when there are none

  bool is_link_waiting() const;
  // A link through the arena waits, and need not.
  bool is_link_ready() const;
  // What the links wait for; how many wait that have no descriptor.
  std::size_t add_link_fds(std::vector<pollfd>& fds) const;
};

}  // namespace lockstep
