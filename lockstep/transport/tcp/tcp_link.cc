#include "lockstep/transport/tcp/tcp_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::uint32_t kMagic = 0x4d4c534c;  // "LSLM"
constexpr std::size_t kCheckedBytes = 56;

std::string header_for(const Announcement& operation, std::size_t bytes) {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kProtocolVersion);
  writer.put(operation.operation);
  writer.put(operation.needs);
  writer.put(static_cast<std::uint8_t>(operation.dtype));
  writer.put(static_cast<std::uint8_t>(operation.reduce));
  writer.put(std::uint16_t{0});
  writer.put(operation.root);
  writer.put(operation.sequence);
  writer.put(operation.count);
  writer.put(operation.place);
  writer.put(static_cast<std::uint64_t>(bytes));
  writer.put(std::uint64_t{0});
  LOCKSTEP_CHECK(writer.bytes().size() == kCheckedBytes);
  writer.put(checksum(writer.bytes().data(), kCheckedBytes));
  return writer.bytes();
}

}  // namespace

TcpLink::TcpLink(Fd socket, int rank, int peer, Describe describe)
    : socket_(std::move(socket)), rank_(rank), peer_(peer), describe_(describe) {}

void TcpLink::lost(const std::string& why) const {
  fail(Code::peer_lost, "rank {} lost its connection to rank {}: {}", rank_, peer_, why);
}

void TcpLink::send(std::span<const std::byte> bytes, const Announcement& operation) {
  Outgoing& message = outgoing_.emplace_back();
  const std::string header = header_for(operation, bytes.size());
  std::memcpy(message.header, header.data(), kHeaderBytes);
  message.bytes = bytes;
}

void TcpLink::receive(std::span<std::byte> bytes, const Announcement& operation) {
  incoming_.push_back({operation, bytes});
}

short TcpLink::wanted_events() const {
  return static_cast<short>((outgoing_.empty() ? 0 : POLLOUT) | (incoming_.empty() ? 0 : POLLIN));
}

void TcpLink::progress() {
  progress_sends();
  progress_receives();
}

void TcpLink::progress_sends() {
  while (!outgoing_.empty()) {
    Outgoing& message = outgoing_.front();
    iovec parts[2];
    int count = 0;
    if (message.done < kHeaderBytes) {
      parts[count++] = {message.header + message.done, kHeaderBytes - message.done};
    }
    const std::size_t body = message.done < kHeaderBytes ? 0 : message.done - kHeaderBytes;
    if (body < message.bytes.size()) {
      parts[count++] = {const_cast<std::byte*>(message.bytes.data()) + body,
                        message.bytes.size() - body};
    }
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = static_cast<std::size_t>(count);
    const auto put = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      lost(std::strerror(errno));
    }
    message.done += static_cast<std::size_t>(put);
    if (message.done == kHeaderBytes + message.bytes.size()) {
      outgoing_.pop_front();
      ++sent_;
    }
  }
}

bool TcpLink::read_some(std::byte* to, std::size_t bytes_max, std::size_t& got) {
  const auto result = ::recv(socket_.get(), to, bytes_max, MSG_DONTWAIT);
  if (result > 0) {
    got = static_cast<std::size_t>(result);
    return true;
  }
  if (result == 0) lost("closed by the peer");
  if (errno == EAGAIN || errno == EINTR) return false;
  lost(std::strerror(errno));
}

void TcpLink::progress_receives() {
  while (!incoming_.empty()) {
    const Incoming& message = incoming_.front();
    std::size_t got = 0;
    if (in_done_ < kHeaderBytes) {
      auto* to = reinterpret_cast<std::byte*>(header_) + in_done_;
      if (!read_some(to, kHeaderBytes - in_done_, got)) return;
      in_done_ += got;
      if (in_done_ == kHeaderBytes) check_header(message);
    } else {
      const std::size_t body = in_done_ - kHeaderBytes;
      if (!read_some(message.bytes.data() + body, message.bytes.size() - body, got)) return;
      in_done_ += got;
    }
    if (in_done_ == kHeaderBytes + message.bytes.size()) {
      incoming_.pop_front();
      in_done_ = 0;
      ++received_;
    }
  }
}

void TcpLink::check_header(const Incoming& expected) {
  const std::string_view raw(header_, kHeaderBytes);
  WireReader reader(raw);
  const bool magic = reader.get<std::uint32_t>() == kMagic;
  const bool version = reader.get<std::uint16_t>() == kProtocolVersion;
  Announcement theirs;
  theirs.operation = reader.get<std::uint8_t>();
  theirs.needs = reader.get<std::uint8_t>();
  const auto dtype = reader.get<std::uint8_t>();
  const auto reduce = reader.get<std::uint8_t>();
  reader.get<std::uint16_t>();
  theirs.root = reader.get<std::int32_t>();
  theirs.sequence = reader.get<std::uint64_t>();
  theirs.count = reader.get<std::int64_t>();
  theirs.place = reader.get<std::uint64_t>();
  const auto bytes = reader.get<std::uint64_t>();
  reader.get<std::uint64_t>();
  const bool intact = reader.get<std::uint64_t>() == checksum(raw.data(), kCheckedBytes);
  if (!magic || !version || !intact || dtype >= kDTypeCount || reduce >= kReduceCount) {
    fail(Code::corrupt, "rank {} got bytes from rank {} that are no message of Lockstep", rank_,
         peer_);
  }
  theirs.dtype = static_cast<DType>(dtype);
  theirs.reduce = static_cast<Reduce>(reduce);
  if (theirs != expected.operation || bytes != expected.bytes.size()) {
    fail(Code::invalid_argument, "the ranks do not agree: rank {} is in {}, rank {} in {}", rank_,
         describe_(expected.operation), peer_, describe_(theirs));
  }
}

}  // namespace lockstep
