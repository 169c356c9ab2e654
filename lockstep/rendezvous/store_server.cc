#include "lockstep/rendezvous/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/env/limits.h"
#include "lockstep/rendezvous/frames.h"
#include "lockstep/transport/handshake.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// Strangers that connect and say nothing are let go after this long.
constexpr auto kGreetTimeout = std::chrono::seconds(10);
constexpr auto kFarewellTimeout = std::chrono::seconds(2);
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr std::size_t kMarginBytes = 1024;
// What the process may need besides a connection to every rank.
constexpr std::size_t kOtherFiles = 256;

//   greeting ──handshake──▶ known ──join──▶ member ──leave──▶ gone
enum class Stage { greeting, known, member, gone };

struct Connection {
  Connection(Stream stream_, const std::string& secret)
      : stream(std::move(stream_)), handshake(Handshake::as_server(secret)) {}

  Stream stream;
  Handshake handshake;
  Stage stage = Stage::greeting;
  Deadline greet_by = Deadline::after(kGreetTimeout);
  std::string in;
  std::string out;
  int rank = -1;
  std::string who;
  bool silent = true;  // nothing has come yet
  bool close_when_sent = false;
};

std::string coded(Code code, const std::string& text) {
  WireWriter writer;
  writer.put(static_cast<std::uint16_t>(code));
  writer.put_text(text);
  return writer.bytes();
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(Fd listener, StoreOptions options)
      : listener_(std::move(listener)),
        options_(std::move(options)),
        join_by_(Deadline::after(options_.join_timeout)),
        stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        members_(static_cast<std::size_t>(options_.world_size)),
        claims_(members_.size()),
        texts_(members_.size()) {
    require_open_files(members_.size() + kOtherFiles);
  }

  void run() {
    // When stopping, rank 0's own farewell is still to be passed on.
    std::optional<Deadline> end_by;
    while (true) {
      if (stopped_ && !end_by) end_by = Deadline::after(kFarewellTimeout);
      if (end_by && (farewell_is_told() || end_by->passed())) return;
      std::vector<pollfd> fds = {{stop_fd_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const auto& connection : connections_) {
        const Stream& stream = connection->stream;
        const int write_events = connection->out.empty() ? 0 : stream.write_events();
        fds.push_back({stream.fd(), static_cast<short>(stream.read_events() | write_events), 0});
      }
      ::poll(fds.data(), fds.size(), end_by ? end_by->remaining_ms() : sleep_ms());
      drain(stop_fd_);
      const std::size_t known = connections_.size();
      if (fds[1].revents != 0) accept_all();
      for (std::size_t i = 0; i < known; ++i) {
        if (fds[i + 2].revents != 0) serve(*connections_[i]);
      }
      check_times();
      for (const auto& connection : connections_) flush(*connection);
      std::erase_if(connections_,
                    [](const auto& connection) { return !connection->stream.valid(); });
    }
  }

  void stop() {
    stopped_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_fd_.get(), &one, sizeof(one));
  }

 private:
  static void drain(const Fd& event) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event.get(), &count, sizeof(count));
  }

  // Rank 0 has gone, and everybody has what was to be said.
  bool farewell_is_told() const {
    if (members_[0] != nullptr && members_[0]->stage != Stage::gone) return false;
    return std::none_of(connections_.begin(), connections_.end(), [](const auto& connection) {
      return connection->stage >= Stage::member && !connection->out.empty();
    });
  }

  bool complete() const { return joined_ == options_.world_size; }

  int sleep_ms() const {
    int sleep = complete() || broken_ ? -1 : join_by_.remaining_ms();
    for (const auto& connection : connections_) {
      if (connection->stage >= Stage::known) continue;
      const int left = connection->greet_by.remaining_ms();
      sleep = sleep < 0 ? left : std::min(sleep, left);
    }
    return sleep;
  }

  void check_times() {
    for (const auto& connection : connections_) {
      if (connection->stage < Stage::known && connection->greet_by.passed()) {
        connection->stream.close();
      }
    }
    if (complete() || broken_ || !join_by_.passed()) return;
    std::string missing;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (members_[rank] == nullptr)
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    break_group(Code::timeout,
                fmt::format("{} of {} ranks had joined after {:.0f} s; missing: rank {}{}", joined_,
                            options_.world_size, join_by_.elapsed_s(), missing, refusals()));
  }

  // A missing rank may well be one of those that could not prove themselves.
  std::string refusals() const {
    if (refused_ == 0) return "";
    return fmt::format(" ({} connection{} did not get through the handshake; of the last: {})",
                       refused_, refused_ == 1 ? "" : "s", last_refusal_);
  }

  void accept_all() {
    try {
      for (Fd socket = accept_from(listener_); socket.valid(); socket = accept_from(listener_)) {
        connections_.push_back(std::make_unique<Connection>(
            options_.key.open(std::move(socket), End::server), options_.key.secret()));
      }
    } catch (const Error&) {
      // No descriptors: those that wait are served when one is free again.
      std::this_thread::sleep_for(kPause);
    }
  }

  void serve(Connection& connection) {
    flush(connection);
    if (!connection.stream.valid()) return;
    // One read a turn, so that nobody who sends without end keeps the others waiting; and what is
    // read is used up at once, so that a stranger's bytes do not pile up.
    std::array<char, kReadBytes> bytes;
    try {
      const std::size_t got = connection.stream.read(std::as_writable_bytes(std::span(bytes)));
      connection.silent = connection.silent && got == 0;
      if (got == 0) return;
      connection.in.append(bytes.data(), got);
    } catch (const Error& error) {
      const bool gone = error.code() == Code::peer_lost;
      connection.silent = connection.silent && gone;
      return lose(connection, gone ? fmt::format("its connection was {}", error.what())
                                   : std::string(error.what()));
    }
    digest(connection);
  }

  // Works through the bytes that have come. A stranger's mistakes end its connection alone.
  void digest(Connection& connection) {
    try {
      while (connection.stream.valid() && digest_one(connection)) {
      }
    } catch (const Error& error) {
      flush(connection);  // a last word for the other end
      lose(connection, error.what());
    }
  }

  bool digest_one(Connection& connection) {
    if (connection.stage == Stage::greeting) {
      connection.handshake.advance(connection.in, connection.out);
      flush(connection);
      if (!connection.handshake.done()) return false;
      connection.rank = connection.handshake.hello().rank;
      connection.stage = Stage::known;
    }
    const std::optional<Frame> frame = decode(connection.in);
    if (!frame) return false;
    handle(connection, *frame);
    return true;
  }

  void handle(Connection& connection, const Frame& frame) {
    WireReader reader(frame.payload);
    if (frame.type == FrameType::join && connection.stage == Stage::known) {
      const auto world_size = reader.get<std::int32_t>();
      return join(connection, world_size, reader.get_text());
    }
    if (connection.stage != Stage::member) {
      fail(Code::corrupt, "a connection that has not joined sends frame {}",
           static_cast<int>(frame.type));
    }
    switch (frame.type) {
      case FrameType::exchange:
        return gather(connection, reader.get_text());
      case FrameType::report: {
        const auto code = static_cast<Code>(reader.get<std::uint16_t>());
        return break_group(code, reader.get_text());
      }
      case FrameType::leave:
        connection.stage = Stage::gone;
        return tell_left(connection, reader.get_text());
      default:
        fail(Code::corrupt, "rank {} sends frame {}", connection.rank,
             static_cast<int>(frame.type));
    }
  }

  void join(Connection& connection, int world_size, const std::string& who) {
    connection.who = who;
    const int rank = connection.rank;
    std::string problem;
    if (world_size != options_.world_size) {
      problem =
          fmt::format("the ranks do not agree on WORLD_SIZE: rank 0 has {}, rank {} ({}) has {}",
                      options_.world_size, rank, who, world_size);
    } else if (rank < 0 || rank >= options_.world_size) {
      problem = fmt::format("rank {} ({}) is outside 0..{}", rank, who, options_.world_size - 1);
    } else if (!claims_[static_cast<std::size_t>(rank)].empty()) {
      problem = fmt::format("two processes claim RANK={}: {} and {}", rank,
                            claims_[static_cast<std::size_t>(rank)], who);
    }
    if (!problem.empty()) {
      send(connection, encode({FrameType::refused, coded(Code::invalid_argument, problem)}));
      connection.close_when_sent = true;
      flush(connection);
      // Once the group stands, a late claim is somebody else's mistake: the port serves this job.
      if (!complete()) break_group(Code::invalid_argument, problem);
      return;
    }
    connection.stage = Stage::member;
    members_[static_cast<std::size_t>(rank)] = &connection;
    claims_[static_cast<std::size_t>(rank)] = who;
    ++joined_;
    if (broken_)
      send(connection, encode({FrameType::broken, coded(broken_->code(), broken_->what())}));
    for (const auto& [gone, how] : left_) send(connection, left_frame(gone, how));
  }

  void gather(Connection& connection, std::string text) {
    texts_[static_cast<std::size_t>(connection.rank)].push_back(std::move(text));
    bool whole = true;
    std::size_t total_bytes = 0;
    for (std::size_t rank = 0; rank < texts_.size(); ++rank) {
      if (texts_[rank].empty()) {
        whole = false;
        if (left_.contains(static_cast<int>(rank))) give_up_exchange(static_cast<int>(rank));
      } else {
        total_bytes += texts_[rank].front().size() + sizeof(std::uint64_t);
      }
    }
    if (total_bytes + kMarginBytes > kFramePayloadBytesMax) {
      return break_group(
          Code::invalid_argument,
          fmt::format("the texts of an exchange have {} bytes together, at most {} are "
                      "allowed",
                      total_bytes, kFramePayloadBytesMax - kMarginBytes));
    }
    if (!whole) return;
    WireWriter writer;
    writer.put(static_cast<std::uint32_t>(texts_.size()));
    for (auto& queue : texts_) {
      writer.put_text(queue.front());
      queue.erase(queue.begin());
    }
    tell_all(encode({FrameType::gathered, writer.bytes()}));
  }

  // Somebody waits in an exchange for a rank that will not come.
  void give_up_exchange(int rank) {
    break_group(Code::peer_lost, fmt::format("rank {} {} while others wait for it in an exchange",
                                             rank, left_.at(rank)));
  }

  void break_group(Code code, const std::string& text) {
    if (broken_) return;
    broken_ = Error(code, text);
    tell_all(encode({FrameType::broken, coded(code, text)}));
  }

  void tell_left(const Connection& connection, const std::string& how) {
    left_[connection.rank] = how;
    const auto waits = [](const auto& queue) { return !queue.empty(); };
    if (std::any_of(texts_.begin(), texts_.end(), waits) &&
        texts_[static_cast<std::size_t>(connection.rank)].empty()) {
      give_up_exchange(connection.rank);
    }
    const std::string frame = left_frame(connection.rank, how);
    for (Connection* member : members_) {
      if (member != nullptr && member->stage == Stage::member) send(*member, frame);
    }
  }

  static std::string left_frame(int rank, const std::string& how) {
    WireWriter writer;
    writer.put(static_cast<std::int32_t>(rank));
    writer.put_text(how);
    return encode({FrameType::left, writer.bytes()});
  }

  // At once: what an exchange gathers is long, and a copy for every rank would be much memory.
  void tell_all(const std::string& bytes) {
    for (Connection* member : members_) {
      if (member == nullptr) continue;
      send(*member, bytes);
      flush(*member);
    }
  }

  // Leaves at the end of the turn: when all leave at once, everybody is told of everybody, and that
  // must not be a system call each.
  static void send(Connection& connection, const std::string& bytes) { connection.out += bytes; }

  void flush(Connection& connection) {
    try {
      while (!connection.out.empty() && connection.stream.valid()) {
        const std::size_t put = connection.stream.write(connection.out);
        if (put == 0) return;  // later
        connection.out.erase(0, put);
      }
      if (connection.out.empty()) connection.out.shrink_to_fit();
    } catch (const Error&) {
      return;  // its closing will be read
    }
    if (connection.close_when_sent && connection.out.empty()) connection.stream.close();
  }

  void lose(Connection& connection, const std::string& why) {
    discard_unread(connection.stream.socket());
    connection.stream.close();
    if (connection.stage == Stage::greeting && !connection.silent) {
      ++refused_;
      last_refusal_ = why;
    }
    const bool member = connection.stage == Stage::member || connection.stage == Stage::gone;
    if (!member) return;
    members_[static_cast<std::size_t>(connection.rank)] = nullptr;
    if (connection.stage == Stage::gone) return;
    connection.stage = Stage::gone;
    break_group(Code::peer_lost,
                fmt::format("rank {} ({}) is gone: {}", connection.rank, connection.who, why));
  }

  const Fd listener_;
  const StoreOptions options_;
  const Deadline join_by_;
  const Fd stop_fd_;
  std::atomic<bool> stopped_{false};
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> members_;             // by rank; null: not joined, or gone
  std::vector<std::string> claims_;              // by rank: who has joined as it, gone or not
  std::vector<std::vector<std::string>> texts_;  // by rank: exchanges not yet complete, in order
  std::map<int, std::string> left_;
  std::optional<Error> broken_;
  int refused_ = 0;  // connections that could not greet
  std::string last_refusal_;
  int joined_ = 0;
};

StoreServer::StoreServer(Fd listener, StoreOptions options)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(options))),
      thread_([loop = loop_.get()] { loop->run(); }) {}

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace lockstep
