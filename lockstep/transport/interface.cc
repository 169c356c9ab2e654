#include "lockstep/transport/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kLinkLocal = "fe80:";

bool is_v6(std::string_view address) {
  return address.find(':') != std::string_view::npos;
}

// As the system writes it, without a scope; empty when it is no numeric address.
std::optional<std::string> canonical(const std::string& address) {
  const std::string bare = without_scope(address);
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = is_v6(bare) ? AF_INET6 : AF_INET;
  if (::inet_pton(family, bare.c_str(), bytes.data()) != 1) return std::nullopt;
  ::inet_ntop(family, bytes.data(), text.data(), text.size());
  return text.data();
}

std::string text_of(const ifaddrs& entry) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto& in4 = reinterpret_cast<const sockaddr_in&>(*entry.ifa_addr);
    return ::inet_ntop(AF_INET, &in4.sin_addr, text.data(), text.size());
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(*entry.ifa_addr);
  const std::string address = ::inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
  return IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? address + "%" + entry.ifa_name : address;
}

std::string list(const std::vector<NetworkInterface>& interfaces) {
  std::string text;
  for (const NetworkInterface& interface : interfaces) {
    std::string addresses;
    for (const std::string& address : interface.addresses) {
      addresses += (addresses.empty() ? "" : ", ") + without_scope(address);
    }
    if (addresses.empty()) addresses = "no address";
    text += fmt::format("{}{} ({}{})", text.empty() ? "" : "; ", interface.name,
                        interface.up ? "" : "down, ", addresses);
  }
  return text;
}

[[noreturn]] void refuse(const std::vector<NetworkInterface>& interfaces, const std::string& choice,
                         const std::string& why) {
  fail(Code::invalid_argument,
       "LOCKSTEP_INTERFACE='{}' {}; it takes the name of one network interface or one address of "
       "this host (no list, no '^'), or nothing, which means the route to the master. There are: "
       "{}",
       choice, why, list(interfaces));
}

// Lower is better.
int rank_of(std::string_view address, std::string_view like) {
  const int other_family = !like.empty() && is_v6(address) != is_v6(like) ? 2 : 0;
  return other_family + (address.starts_with(kLinkLocal) ? 1 : 0);
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) fail_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> entries(raw, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = entries.get(); entry != nullptr; entry = entry->ifa_next) {
    auto at = std::ranges::find(interfaces, entry->ifa_name, &NetworkInterface::name);
    if (at == interfaces.end()) at = interfaces.insert(at, {entry->ifa_name, false, {}});
    at->up = (entry->ifa_flags & IFF_UP) != 0;
    const bool internet = entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET ||
                                                         entry->ifa_addr->sa_family == AF_INET6);
    if (internet) at->addresses.push_back(text_of(*entry));
  }
  return interfaces;
}

std::string choose_address(const std::vector<NetworkInterface>& interfaces,
                           const std::string& choice, std::string_view like) {
  const std::optional<std::string> address = canonical(choice);
  const auto scope_at = choice.find('%');
  for (const NetworkInterface& interface : interfaces) {
    if (address) {
      const bool scoped = scope_at != std::string::npos;
      if (scoped && choice.substr(scope_at + 1) != interface.name) continue;
      for (const std::string& own : interface.addresses) {
        if (without_scope(own) != *address) continue;
        if (!interface.up) refuse(interfaces, choice, "is an address of an interface that is down");
        return own;
      }
    } else if (interface.name == choice) {
      if (!interface.up) refuse(interfaces, choice, "is a network interface that is down");
      if (interface.addresses.empty()) {
        refuse(interfaces, choice, "is a network interface without an address");
      }
      return *std::ranges::min_element(interface.addresses, {},
                                       [&](const auto& own) { return rank_of(own, like); });
    }
  }
  refuse(interfaces, choice,
         address ? "is no address of this host" : "is no network interface of this host");
}

std::string address_of_interface(const std::string& choice, std::string_view like) {
  return choice.empty() ? "" : choose_address(network_interfaces(), choice, like);
}

std::string without_scope(const std::string& host) {
  return host.substr(0, host.find('%'));
}

std::string with_scope_of(const std::string& host, const std::string& own) {
  if (!host.starts_with(kLinkLocal) || host.find('%') != std::string::npos) return host;
  if (const auto scope_at = own.find('%'); scope_at != std::string::npos) {
    return host + own.substr(scope_at);
  }
  for (const NetworkInterface& interface : network_interfaces()) {
    if (std::ranges::find(interface.addresses, own) != interface.addresses.end()) {
      return host + "%" + interface.name;
    }
  }
  return host;
}

}  // namespace lockstep
