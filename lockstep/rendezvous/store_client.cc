#include "lockstep/rendezvous/store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <span>
#include <thread>
#include <utility>

#include "lockstep/rendezvous/frames.h"
#include "lockstep/transport/tcp/greeting.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// How long a farewell or a report may take to leave; its receiver may be gone already.
constexpr auto kSendTimeout = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kAnswerTimeout{20'000};
constexpr int kAttemptsMax = 5;
constexpr auto kPause = std::chrono::milliseconds(50);

Stream connect_and_greet(const std::string& host, std::uint16_t port, const StoreIdentity& identity,
                         const Deadline& deadline) {
  // A connection that was made while its listener was closing is dropped: try again, a few times.
  for (int attempt = 1;; ++attempt) {
    Fd socket = connect_to(host, port, deadline);
    const auto answer_by = Deadline::after(
        std::min(kAnswerTimeout, std::chrono::milliseconds(deadline.remaining_ms())));
    try {
      return greet(identity.key.open(std::move(socket), End::client),
                   Handshake::as_client({Purpose::store, identity.rank, 0}, identity.key.secret()),
                   answer_by);
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost || attempt == kAttemptsMax || deadline.passed()) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

StoreClient::StoreClient(const std::string& host, std::uint16_t port, const StoreIdentity& identity,
                         const Deadline& deadline)
    : store_(SocketAddress{host, port}.text()), identity_(identity) {
  try {
    stream_ = connect_and_greet(host, port, identity, deadline);
  } catch (const Error& error) {
    fail(error.code(), "rank {} cannot join its group at {} (MASTER_ADDR:MASTER_PORT): {}",
         identity.rank, store_, error.what());
  }
  WireWriter writer;
  writer.put(static_cast<std::int32_t>(identity.world_size));
  writer.put_text(identity.who);
  send(encode({FrameType::join, writer.bytes()}), deadline);
}

void StoreClient::listen(Events events) {
  events_ = std::move(events);
  listening_ = true;
  // What came while nobody listened.
  std::optional<Error> broken;
  std::map<int, std::string> left;
  {
    const std::lock_guard lock(mutex_);
    broken = broken_;
    left = left_;
  }
  for (const auto& [rank, how] : left) events_.left(rank, how);
  if (broken) events_.broken(*broken);
}

void StoreClient::send(std::string_view bytes, const Deadline& deadline) {
  const std::lock_guard whole_frame(send_mutex_);
  try {
    while (!bytes.empty()) {
      pollfd entry{stream_.fd(), 0, 0};
      {
        const std::lock_guard lock(stream_mutex_);
        bytes.remove_prefix(stream_.write(bytes));
        entry.events = stream_.write_events();
      }
      if (bytes.empty()) return;
      if (deadline.passed()) {
        fail(Code::timeout, "the store at {} took nothing for {:.1f} s", store_,
             deadline.elapsed_s());
      }
      ::poll(&entry, 1, deadline.remaining_ms());
    }
  } catch (const Error&) {
    shut();  // half a frame is out: nothing may follow it
    throw;
  }
}

// The descriptor stays, because it is watched.
void StoreClient::shut() {
  ::shutdown(stream_.fd(), SHUT_RDWR);
}

void StoreClient::throw_if_broken() {
  on_readable();
  const std::lock_guard lock(mutex_);
  if (broken_) throw *broken_;
  if (closed_) fail(Code::peer_lost, "rank 0, which hosts the store at {}, has left", store_);
}

bool StoreClient::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool StoreClient::on_readable() {
  if (closed()) return false;
  try {
    read_all();
  } catch (const Error& error) {
    broke(error);
    return false;
  }
  return !closed();
}

void StoreClient::read_all() {
  std::array<char, kReadBytes> bytes;
  bool closed = false;
  std::string how;
  while (!closed) {
    try {
      const std::lock_guard lock(stream_mutex_);
      const std::size_t got = stream_.read(std::as_writable_bytes(std::span(bytes)));
      if (got == 0) break;
      in_.append(bytes.data(), got);
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost) throw;
      closed = true;
      how = error.what();
    }
  }
  while (const auto frame = decode(in_)) handle(frame->payload, static_cast<int>(frame->type));
  if (!closed) return;
  shut();
  bool orderly = false;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    orderly = left_.contains(0) || leaving_;
  }
  changed_.notify_all();
  // Rank 0 that has said farewell takes the store along; nothing is wrong until somebody needs it.
  if (!orderly) {
    broke(Error(Code::peer_lost,
                fmt::format("rank {} lost the store at {}: rank 0, which hosts it, is gone ({})",
                            identity_.rank, store_, how)));
  }
}

void StoreClient::handle(const std::string& payload, int type) {
  WireReader reader(payload);
  switch (static_cast<FrameType>(type)) {
    case FrameType::gathered: {
      const auto ranks = reader.get<std::uint32_t>();
      if (ranks != static_cast<std::uint32_t>(identity_.world_size)) {
        fail(Code::corrupt, "the store gathered {} texts, not {}", ranks, identity_.world_size);
      }
      std::vector<std::string> texts(ranks);
      for (std::string& text : texts) text = reader.get_text();
      const std::lock_guard lock(mutex_);
      gathered_.push_back(std::move(texts));
      break;
    }
    case FrameType::broken:
    case FrameType::refused: {
      const auto code = static_cast<Code>(reader.get<std::uint16_t>());
      return broke(Error(code, reader.get_text()));
    }
    case FrameType::left: {
      const auto rank = reader.get<std::int32_t>();
      const std::string how = reader.get_text();
      {
        const std::lock_guard lock(mutex_);
        left_[rank] = how;
      }
      if (events_.left) events_.left(rank, how);
      break;
    }
    default:
      fail(Code::corrupt, "the store sent frame {}", type);
  }
  changed_.notify_all();
}

void StoreClient::broke(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || leaving_) return;
    broken_ = error;
  }
  changed_.notify_all();
  if (events_.broken) events_.broken(error);
}

std::vector<std::string> StoreClient::exchange(const std::string& text, const Deadline& deadline) {
  WireWriter writer;
  writer.put_text(text);
  try {
    send(encode({FrameType::exchange, writer.bytes()}), deadline);
  } catch (const Error&) {
    // Why the store does not take it is on its way to on_readable().
  }
  const auto arrived = [this] { return !gathered_.empty() || broken_ || closed_; };
  std::unique_lock lock(mutex_);
  while (!listening_ && !arrived() && !deadline.passed()) {
    lock.unlock();
    pollfd entry{stream_.fd(), POLLIN, 0};
    if (::poll(&entry, 1, deadline.remaining_ms()) > 0) on_readable();
    lock.lock();
  }
  if (!changed_.wait_for(lock, std::chrono::milliseconds(deadline.remaining_ms()), arrived)) {
    lock.unlock();
    const Error late(
        Code::timeout,
        fmt::format("rank {}: the other ranks did not come to an exchange within {:.0f} s",
                    identity_.rank, deadline.elapsed_s()));
    report(late);
    broke(late);
    throw late;
  }
  if (!gathered_.empty()) {
    std::vector<std::string> texts = std::move(gathered_.front());
    gathered_.pop_front();
    return texts;
  }
  if (broken_) throw *broken_;
  fail(Code::peer_lost, "rank {}: rank 0, which hosts the store at {}, has left", identity_.rank,
       store_);
}

void StoreClient::report(const Error& error) {
  WireWriter writer;
  writer.put(static_cast<std::uint16_t>(error.code()));
  writer.put_text(error.what());
  try {
    send(encode({FrameType::report, writer.bytes()}), Deadline::after(kSendTimeout));
  } catch (const Error&) {
    // The store is gone: everybody has noticed.
  }
}

void StoreClient::leave(const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, true) || closed_) return;
  }
  WireWriter writer;
  writer.put_text(how);
  try {
    send(encode({FrameType::leave, writer.bytes()}), Deadline::after(kSendTimeout));
  } catch (const Error&) {
    // Nobody is left to say farewell to.
  }
}

}  // namespace lockstep
