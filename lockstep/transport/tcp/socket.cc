#include "lockstep/transport/tcp/socket.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The resolver reads "123" as the address 0.0.0.123, which nobody means.
void refuse_number(const std::string& host) {
  if (!host.empty() && host.find_first_not_of("0123456789") == std::string::npos) {
    fail(Code::invalid_argument,
         "the host name '{}' is all digits and would be taken for the address 0.0.0.{}: give the "
         "host's address or another name",
         host, host);
  }
}

AddressList resolve(const std::string& host, std::uint16_t port, int flags) {
  refuse_number(host);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    fail(Code::invalid_argument, "cannot find the address of host '{}': {}", host,
         ::gai_strerror(error));
  }
  return AddressList(found, &::freeaddrinfo);
}

SocketAddress to_address(const sockaddr_storage& storage) {
  char host[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host));
    char scope[IF_NAMESIZE] = "";
    if (in6.sin6_scope_id != 0 && ::if_indextoname(in6.sin6_scope_id, scope) != nullptr) {
      return {fmt::format("{}%{}", host, scope), ntohs(in6.sin6_port)};
    }
    return {host, ntohs(in6.sin6_port)};
  }
  const auto& in4 = reinterpret_cast<const sockaddr_in&>(storage);
  ::inet_ntop(AF_INET, &in4.sin_addr, host, sizeof(host));
  return {host, ntohs(in4.sin_port)};
}

bool is_every_address(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
}

// Small messages leave at once, and a host that vanishes without closing anything is noticed.
void make_prompt(const Fd& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

bool ready(const Fd& socket, short events, const Deadline& deadline) {
  pollfd entry{socket.get(), events, 0};
  return ::poll(&entry, 1, deadline.remaining_ms()) > 0;
}

// One attempt; an errno when it fails.
int try_connect(const addrinfo& to, const Deadline& deadline, Fd& socket) {
  socket = Fd(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!ready(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

std::string SocketAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Fd listen_on(const std::string& host, std::uint16_t port) {
  const AddressList found = resolve(host, port, AI_PASSIVE);
  if (is_every_address(*found->ai_addr)) {
    fail(Code::invalid_argument,
         "'{}' means every address of this host, and listening there opens the job to every "
         "network: give the one address that the other ranks can reach",
         host);
  }
  Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail_errno(errno, "cannot make a socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const std::string where = SocketAddress{host, port}.text();
    if (errno == EADDRINUSE) {
      fail(Code::io, "cannot listen on {}: the port is in use by another program; choose another",
           where);
    }
    fail_errno(errno, fmt::format("cannot listen on {}", where));
  }
  return socket;
}

Fd accept_from(const Fd& listener) {
  Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    make_prompt(socket);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    fail_errno(errno, "cannot accept a connection");
  }
  return socket;
}

Fd connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    const AddressList found = resolve(host, port, 0);
    std::string reasons;
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      Fd socket;
      const int error = try_connect(*to, deadline, socket);
      if (error == 0) {
        make_prompt(socket);
        return socket;
      }
      sockaddr_storage storage{};
      std::memcpy(&storage, to->ai_addr, to->ai_addrlen);
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", to_address(storage).text(),
                             std::strerror(error));
    }
    if (deadline.passed()) {
      fail(Code::timeout, "cannot connect to {} within {:.0f} s ({})",
           SocketAddress{host, port}.text(), deadline.elapsed_s(), reasons);
    }
    const auto left = std::chrono::milliseconds(deadline.remaining_ms());
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

Fd start_connect(const SocketAddress& to, const std::string& own_host) {
  const AddressList target = resolve(to.host, to.port, AI_NUMERICHOST);
  const AddressList own = resolve(own_host, 0, AI_NUMERICHOST);
  Fd socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail_errno(errno, "cannot make a socket");
  // The port is chosen when the other end is known, so that ports do not run out.
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  if (::bind(socket.get(), own->ai_addr, own->ai_addrlen) != 0) {
    fail_errno(errno, fmt::format("cannot connect from {} to {}", own_host, to.text()));
  }
  make_prompt(socket);
  if (::connect(socket.get(), target->ai_addr, target->ai_addrlen) != 0 && errno != EINPROGRESS) {
    fail(Code::peer_lost, "{} from {}: {}", to.text(), own_host, std::strerror(errno));
  }
  return socket;
}

std::optional<int> connect_result(const Fd& socket) {
  pollfd entry{socket.get(), POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

void make_unpaced_within_host(const Fd& socket) {
  if (local_address(socket).host != peer_address(socket).host) return;
  // The one that every kernel has and every user may choose.
  constexpr std::string_view kName = "reno";
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kName.data(), kName.size());
}

void discard_unread(const Fd& socket) {
  constexpr int kReadsMax = 16;
  std::array<char, 4096> bytes;
  for (int i = 0; i < kReadsMax; ++i) {
    if (::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) <= 0) return;
  }
}

SocketAddress local_address(const Fd& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    fail_errno(errno, "cannot find the address of a socket");
  }
  return to_address(storage);
}

SocketAddress peer_address(const Fd& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  // A peer that has gone has no address any more; that is no error of its own.
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return {"(gone)", 0};
  }
  return to_address(storage);
}

}  // namespace lockstep
