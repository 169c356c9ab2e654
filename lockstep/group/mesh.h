// Links over TCP between every two ranks of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/transport/link.h"
#include "lockstep/transport/tcp/acceptor.h"

namespace lockstep {

struct MeshOptions {
  std::string interface;    // LOCKSTEP_INTERFACE; empty: the address of the route to the store
  std::uint64_t group = 0;  // the same on all its ranks, and no other group's
};

// The links refer to the acceptor.
struct Mesh {
  std::uint64_t group = 0;
  std::unique_ptr<Acceptor> acceptor;
  std::vector<std::unique_ptr<Link>> links;  // by rank; null for this rank

  // `rank` has left in good order: a link that waits for its connection fails. Any thread.
  void left(int rank, const std::string& how) const { acceptor->left(group, rank, how); }
};

// Collective: listens on one address of this host and tells the others. No connection is made yet:
// when the first message between two ranks is due, on both sides, the higher rank connects to the
// lower one. Both have an operation under way then, since every send has its receive.
Mesh make_mesh(StoreClient& store, const StoreIdentity& identity, const MeshOptions& options,
               const Deadline& deadline);

// What the ranks tell each other: where they listen. A link-local address travels without its
// scope. Throws Error(corrupt).
std::string address_to_wire(const SocketAddress& address);
SocketAddress address_from_wire(std::string_view wire);

}  // namespace lockstep
