#include "lockstep/group/mesh.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/execution.h"
#include "lockstep/transport/interface.h"
#include "lockstep/transport/tcp/dialer.h"
#include "lockstep/transport/tcp/stream_link.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

Mesh::Mesh(StoreClient& store, const StoreIdentity& identity, const std::string& interface,
           const Deadline& deadline)
    : key_(identity.key) {
  const std::string route = store.local().host;
  own_host_ = interface.empty() ? route : address_of_interface(interface, route);
  acceptor_ = std::make_unique<Acceptor>(listen_on(own_host_, 0), key_,
                                         fmt::format("rank {}", identity.rank));
  for (const std::string& wire : store.exchange(address_to_wire(acceptor_->address()), deadline)) {
    SocketAddress& address = addresses_.emplace_back(address_from_wire(wire));
    address.host = with_scope_of(address.host, own_host_);
  }
}

std::vector<std::unique_ptr<Link>> Mesh::links(std::uint64_t group, const std::vector<int>& members,
                                               int own) const {
  const Hello hello{Purpose::data, own, group};
  std::vector<std::unique_ptr<Link>> links(members.size());
  for (int peer = 0; peer < static_cast<int>(members.size()); ++peer) {
    if (peer == own) continue;
    const auto index = static_cast<std::size_t>(peer);
    std::unique_ptr<StreamSource> source;
    if (peer < own) {
      const auto member = static_cast<std::size_t>(members[index]);
      source = std::make_unique<Dialer>(addresses_[member], own_host_, hello, key_);
    } else {
      source = std::make_unique<Awaited>(acceptor_.get(), group, peer);
    }
    links[index] = std::make_unique<StreamLink>(std::move(source), own, peer, describe);
  }
  return links;
}

std::string address_to_wire(const SocketAddress& address) {
  WireWriter writer;
  writer.put_text(without_scope(address.host));
  writer.put(address.port);
  return writer.bytes();
}

SocketAddress address_from_wire(std::string_view wire) {
  WireReader reader(wire);
  SocketAddress address;
  address.host = reader.get_text();
  address.port = reader.get<std::uint16_t>();
  if (reader.left() != 0 || address.port == 0) {
    fail(Code::corrupt, "a rank's address is none: {} bytes, port {}", wire.size(), address.port);
  }
  return address;
}

}  // namespace lockstep
