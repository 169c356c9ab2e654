// Mesh: how the ranks of a job reach each other over TCP.
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

// Thread rule: any thread.
class Mesh {
 public:
  // Collective: listens on one address of this host and tells the others. `interface`:
  // LOCKSTEP_INTERFACE; empty: the address of the route to the store.
  Mesh(StoreClient& store, const StoreIdentity& identity, const std::string& interface,
       const Deadline& deadline);

  // Links of one group, by its ranks; null for `own`. `members` are its ranks' numbers in the job;
  // `group` is the same on all of them, and no other group's. No connection is made yet: when the
  // first message between two ranks is due, on both sides, the higher rank connects to the lower
  // one. Both have an operation under way then, since every send has its receive.
  // The group must be open while they live.
  std::vector<std::unique_ptr<Link>> links(std::uint64_t group, const std::vector<int>& members,
                                           int own) const;
  void open(std::uint64_t group) const { acceptor_->open(group); }
  void close(std::uint64_t group) const { acceptor_->close(group); }
  // `rank` of the group has left in good order: a link that waits for its connection fails.
  void left(std::uint64_t group, int rank, const std::string& how) const {
    acceptor_->left(group, rank, how);
  }

 private:
  const JobKey key_;
  std::string own_host_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<SocketAddress> addresses_;  // by rank of the job
};

// What the ranks tell each other: where they listen. A link-local address travels without its
// scope. Throws Error(corrupt).
std::string address_to_wire(const SocketAddress& address);
SocketAddress address_from_wire(std::string_view wire);

}  // namespace lockstep
