// Acceptor: the listener that data connections of this process come in at. Each must prove the
// job's secret; then it is kept, by group and rank, until the link that waits for it takes it, even
// if its group is not open here yet.
//
// Nobody can hold up anybody: all handshakes go on at once, whoever is silent is dropped after 10
// s, and when too many are under way the oldest is.
//
// Thread rule: any thread. Nothing here blocks.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/env/fd.h"
#include "lockstep/transport/tcp/greeting.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/tcp/stream_source.h"

namespace lockstep {

class Acceptor {
 public:
  static constexpr std::size_t kGreetingsMax = 4096;  // handshakes under way
  static constexpr std::size_t kKeptMax = 65'536;     // connections that nobody has taken

  // `owner` names this process in warnings ("rank 3").
  Acceptor(Fd listener, JobKey key, std::string owner);

  SocketAddress address() const { return local_address(listener_); }

  // A group waits for connections from open() to close(), which drops those that it has not taken.
  void open(std::uint64_t group);
  void close(std::uint64_t group);

  // For poll(2) with kEvents: reports something when take() has something to do.
  static constexpr short kEvents = POLLIN | POLLOUT;
  int fd(std::uint64_t group, int rank);

  // Serves whoever has come; the connection of `rank` in `group` if it is there. Throws
  // Error(peer_lost) when `rank` has left and no connection of it is under way.
  std::optional<Stream> take(std::uint64_t group, int rank);
  // `rank` has left the group in good order (`how`): whoever waits for its connection is told.
  void left(std::uint64_t group, int rank, const std::string& how);

 private:
  using Who = std::pair<std::uint64_t, int>;
  // What the drivers of a group wait for: anything that comes in, or news that another group's
  // driver has found for them.
  struct Door {
    Fd news;
    Fd epoll;
  };
  struct Guest {
    Greeting greeting;
    Deadline greet_by;
    SocketAddress from;
    std::uint64_t number;  // in the order of coming
    short events;
  };

  void serve();
  void accept_all();
  void drop_oldest();
  // False when it is over with the guest: greeted or refused.
  bool greet_one(Guest& guest);
  void tell(std::uint64_t group);
  void warn(const SocketAddress& from, const std::string& why);
  bool is_greeting(const Who& who) const;

  const Fd listener_;
  const JobKey key_;
  const std::string owner_;
  const Fd epoll_;  // of the listener and the guests

  std::mutex mutex_;
  std::map<std::uint64_t, Door> doors_;  // by group; guarded by mutex_
  std::map<int, Guest> guests_;          // by descriptor; guarded by mutex_
  std::map<Who, Stream> kept_;           // guarded by mutex_
  std::map<Who, std::string> left_;      // guarded by mutex_
  std::uint64_t guests_ever_ = 0;        // guarded by mutex_
  int warnings_ = 0;                     // guarded by mutex_
};

// The stream of one peer, which connects to `acceptor`. The group must be open there while this
// lives.
class Awaited final : public StreamSource {
 public:
  Awaited(Acceptor* acceptor, std::uint64_t group, int peer)
      : acceptor_(acceptor), group_(group), peer_(peer) {}

  std::optional<Stream> progress() override { return acceptor_->take(group_, peer_); }
  int fd() const override { return acceptor_->fd(group_, peer_); }
  short wanted_events() const override { return Acceptor::kEvents; }

 private:
  Acceptor* const acceptor_;
  const std::uint64_t group_;
  const int peer_;
};

}  // namespace lockstep
