#include "lockstep/transport/tcp/stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

// Up to here a header and its bytes are copied together, to be one record.
constexpr std::size_t kCoalescedBytesMax = 16'384;

}  // namespace

Stream::Stream(Fd socket, std::shared_ptr<const TlsContext> context, End end)
    : socket_(std::move(socket)),
      tls_(std::make_unique<TlsSession>(std::move(context), socket_.get(), end)) {}

std::size_t Stream::read(std::span<std::byte> first, std::span<std::byte> second) {
  if (channel_) return channel_->read(first, second);
  if (tls_) return tls_->read(first.empty() ? second : first);
  ssize_t got = 0;
  if (first.empty() || second.empty()) {
    const auto to = first.empty() ? second : first;
    got = ::recv(socket_.get(), to.data(), to.size(), MSG_DONTWAIT);
  } else {
    iovec parts[2] = {{first.data(), first.size()}, {second.data(), second.size()}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    got = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT);
  }
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0 && !(first.empty() && second.empty())) {
    fail(Code::peer_lost, "closed by the other end");
  }
  if (got == 0 || errno == EAGAIN || errno == EINTR) return 0;
  fail(Code::peer_lost, "{}", std::strerror(errno));
}

std::size_t Stream::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (channel_) return channel_->write(first, second);
  if (tls_) return write_encrypted(first, second);
  iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                    {const_cast<std::byte*>(second.data()), second.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = second.empty() ? 1 : 2;
  const auto put = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put >= 0) return static_cast<std::size_t>(put);
  if (errno == EAGAIN || errno == EINTR) return 0;
  fail(Code::peer_lost, "{}", std::strerror(errno));
}

std::size_t Stream::write_encrypted(std::span<const std::byte> first,
                                    std::span<const std::byte> second) {
  if (first.empty()) return tls_->write(second);
  if (second.empty() || first.size() + second.size() > kCoalescedBytesMax) {
    return tls_->write(first);
  }
  std::array<std::byte, kCoalescedBytesMax> both;
  std::memcpy(both.data(), first.data(), first.size());
  std::memcpy(both.data() + first.size(), second.data(), second.size());
  return tls_->write({both.data(), first.size() + second.size()});
}

short Stream::read_events() const {
  return tls_ ? tls_->read_events() : static_cast<short>(POLLIN);
}

short Stream::write_events() const {
  return tls_ ? tls_->write_events() : static_cast<short>(POLLOUT);
}

void Stream::close() {
  tls_.reset();
  socket_.reset();
}

JobKey::JobKey(std::string secret, bool encrypt) : secret_(std::move(secret)) {
  if (!encrypt) return;
  if (secret_.empty()) {
    fail(Code::invalid_argument,
         "LOCKSTEP_ENCRYPT=1 needs a secret to make its keys from: set LOCKSTEP_SECRET to the same "
         "value on all ranks, or start the job with `lockstep run --encrypt`, which makes one");
  }
  context_ = std::make_shared<const TlsContext>(secret_);
}

Stream JobKey::open(Fd socket, End end) const {
  return context_ ? Stream(std::move(socket), context_, end) : Stream(std::move(socket));
}

}  // namespace lockstep
