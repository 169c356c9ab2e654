#include "lockstep/transport/tcp/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

namespace {

constexpr auto kGreetTimeout = std::chrono::seconds(10);
constexpr int kWarningsMax = 20;
constexpr int kEventsMax = 64;

Fd make_epoll() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) fail_errno(errno, "cannot make an event descriptor");
  return epoll;
}

void watch(const Fd& epoll, int fd, short events, int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(events);  // POLLIN and POLLOUT are EPOLLIN and EPOLLOUT
  event.data.fd = fd;
  if (::epoll_ctl(epoll.get(), operation, fd, &event) != 0) {
    fail_errno(errno, "cannot watch a connection");
  }
}

}  // namespace

Acceptor::Acceptor(Fd listener, JobKey key, std::string owner)
    : listener_(std::move(listener)),
      key_(std::move(key)),
      owner_(std::move(owner)),
      epoll_(make_epoll()) {
  watch(epoll_, listener_.get(), POLLIN);
}

void Acceptor::open(std::uint64_t group) {
  Door door{Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), make_epoll()};
  if (!door.news.valid()) fail_errno(errno, "cannot make an event descriptor");
  watch(door.epoll, door.news.get(), POLLIN);
  watch(door.epoll, epoll_.get(), POLLIN);
  const std::lock_guard lock(mutex_);
  doors_[group] = std::move(door);
}

void Acceptor::close(std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  const auto of_group = [&](const auto& entry) { return entry.first.first == group; };
  std::erase_if(kept_, of_group);
  std::erase_if(left_, of_group);
  doors_.erase(group);
}

int Acceptor::fd(std::uint64_t group, int rank) {
  const std::lock_guard lock(mutex_);
  const Door& door = doors_.at(group);
  const Who who{group, rank};
  const bool due = kept_.contains(who) || (left_.contains(who) && !is_greeting(who));
  // What became known while another link was served: an event descriptor is always writable, so
  // that poll(2) returns at once; an epoll never is.
  return (due ? door.news : door.epoll).get();
}

std::optional<Stream> Acceptor::take(std::uint64_t group, int rank) {
  const std::lock_guard lock(mutex_);
  std::uint64_t news = 0;
  [[maybe_unused]] const auto got = ::read(doors_.at(group).news.get(), &news, sizeof(news));
  serve();
  const Who who{group, rank};
  if (const auto found = kept_.find(who); found != kept_.end()) {
    Stream stream = std::move(found->second);
    kept_.erase(found);
    return stream;
  }
  if (const auto gone = left_.find(who); gone != left_.end() && !is_greeting(who)) {
    fail(Code::peer_lost, "it {}", gone->second);
  }
  return std::nullopt;
}

void Acceptor::left(std::uint64_t group, int rank, const std::string& how) {
  const std::lock_guard lock(mutex_);
  left_[{group, rank}] = how;
  tell(group);
}

void Acceptor::tell(std::uint64_t group) {
  const auto door = doors_.find(group);
  if (door == doors_.end()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(door->second.news.get(), &one, sizeof(one));
}

void Acceptor::serve() {
  std::array<epoll_event, kEventsMax> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_all();
    } else if (const auto guest = guests_.find(fd); guest != guests_.end()) {
      if (!greet_one(guest->second)) guests_.erase(guest);
    }
  }
  std::erase_if(guests_, [](const auto& entry) { return entry.second.greet_by.passed(); });
}

void Acceptor::accept_all() {
  while (true) {
    Fd socket;
    try {
      socket = accept_from(listener_);
    } catch (const Error&) {
      if (guests_.empty()) throw;
      drop_oldest();  // the next turn has a descriptor
      return;
    }
    if (!socket.valid()) return;
    if (guests_.size() == kGreetingsMax) drop_oldest();
    const int fd = socket.get();
    const SocketAddress from = peer_address(socket);
    Guest guest{
        Greeting(key_.open(std::move(socket), End::server), Handshake::as_server(key_.secret())),
        Deadline::after(kGreetTimeout), from, guests_ever_++, POLLIN};
    watch(epoll_, fd, guest.events);
    guests_.emplace(fd, std::move(guest));
  }
}

void Acceptor::drop_oldest() {
  guests_.erase(
      std::ranges::min_element(guests_, {}, [](const auto& entry) { return entry.second.number; }));
}

bool Acceptor::greet_one(Guest& guest) {
  try {
    if (!guest.greeting.progress()) {
      const short events = guest.greeting.wanted_events();
      if (events != guest.events)
        watch(epoll_, guest.greeting.stream().fd(), events, EPOLL_CTL_MOD);
      guest.events = events;
      return true;
    }
  } catch (const Error& error) {
    warn(guest.from, error.what());
    const Handshake& handshake = guest.greeting.handshake();
    if (handshake.hello_known()) tell(handshake.hello().group);
    return false;
  }
  const Hello hello = guest.greeting.handshake().hello();
  if (hello.purpose != Purpose::data || kept_.size() == kKeptMax) {
    warn(guest.from, "it is not for the data of this job's ranks");
    return false;
  }
  Stream stream = guest.greeting.take();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
  // A second one of the same rank replaces the first, which its peer has given up.
  kept_[{hello.group, hello.rank}] = std::move(stream);
  tell(hello.group);
  return false;
}

void Acceptor::warn(const SocketAddress& from, const std::string& why) {
  if (warnings_ == kWarningsMax) return;
  log_warning(owner_, "refused a connection from {}: {}{}", from.text(), why,
              ++warnings_ == kWarningsMax ? " (further ones are not reported)" : "");
}

bool Acceptor::is_greeting(const Who& who) const {
  return std::ranges::any_of(guests_, [&](const auto& entry) {
    const Handshake& handshake = entry.second.greeting.handshake();
    return handshake.hello_known() && who == Who(handshake.hello().group, handshake.hello().rank);
  });
}

}  // namespace lockstep
