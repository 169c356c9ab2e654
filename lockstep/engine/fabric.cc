#include "lockstep/engine/fabric.h"

#include <algorithm>

namespace lockstep {

bool Fabric::is_link_waiting() const {
  return std::ranges::any_of(
      links, [](const Link* link) { return link != nullptr && link->wanted_events() != 0; });
}

bool Fabric::is_link_ready() const {
  return std::ranges::any_of(links,
                             [](const Link* link) { return link != nullptr && link->is_ready(); });
}

std::size_t Fabric::add_link_fds(std::vector<pollfd>& fds) const {
  std::size_t channels = 0;
  for (const Link* link : links) {
    if (link == nullptr || link->wanted_events() == 0) continue;
    if (link->fd() >= 0) {
      fds.push_back({link->fd(), link->wanted_events(), 0});
    } else {
      ++channels;
    }
  }
  return channels;
}

}  // namespace lockstep
