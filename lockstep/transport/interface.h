// The network interfaces of this host, and the local address that LOCKSTEP_INTERFACE stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct NetworkInterface {
  std::string name;
  bool up = false;
  std::vector<std::string> addresses;  // numeric; a link-local IPv6 address carries "%name"
};

// In the system's order. Throws Error(io).
std::vector<NetworkInterface> network_interfaces();

// The numeric address that `choice`, the name of an interface or one of its addresses, stands for.
// Of an interface's addresses the first of the family of `like` (a numeric address, or empty) is
// taken, and link-local ones last. Throws Error(invalid_argument) with the value, what is accepted,
// and all interfaces when it stands for none, or for one that is down. Pure.
std::string choose_address(const std::vector<NetworkInterface>& interfaces,
                           const std::string& choice, std::string_view like);

// choose_address() among this host's; empty for an empty choice, which means automatic.
std::string address_of_interface(const std::string& choice, std::string_view like = {});

// "fe80::1%eth0" without its scope, which means something on its own host alone.
std::string without_scope(const std::string& host);
// A link-local address of a peer as this host reaches it from `own`, one of its own addresses: over
// the same interface.
std::string with_scope_of(const std::string& host, const std::string& own);

}  // namespace lockstep
