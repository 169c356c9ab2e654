// What the ranks of a group are connected by, as the engine sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/transport/arena.h"
#include "lockstep/transport/link.h"

namespace lockstep {

// Memory that every rank of a group has a block of, all mapped here.
struct SharedRegion {
  std::uint64_t id = 0;  // the same on all ranks
  std::size_t bytes = 0;
  std::vector<std::byte*> by_rank;
};

// Owns nothing. Either `arena` is set (all ranks on one host) or `links` holds a link to every
// peer.
struct Fabric {
  int rank = 0;
  int ranks = 1;
  Arena* arena = nullptr;
  std::vector<Link*> links;  // by rank; null for this rank
};

}  // namespace lockstep
