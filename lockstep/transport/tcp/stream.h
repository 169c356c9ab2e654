// Stream: the bytes of one connected socket, in clear or encrypted, or of a channel in shared
// memory; who reads and writes it cannot tell which. JobKey: what opens one over a socket.
//
// Thread rule: a stream belongs to one thread at a time; a key may be used from any.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/env/fd.h"
#include "lockstep/transport/channel.h"
#include "lockstep/transport/tcp/tls.h"

namespace lockstep {

class Stream {
 public:
  Stream() = default;
  // In clear.
  explicit Stream(Fd socket) : socket_(std::move(socket)) {}
  Stream(Fd socket, std::shared_ptr<const TlsContext> context, End end);
  // Within a host: there is no descriptor to wait for then, but Arena::listen().
  explicit Stream(const Channel& channel) : channel_(channel) {}

  // Bytes moved without blocking; 0: none now, until poll(2) reports read_events() or
  // write_events(). `first` comes before `second`; after a write of 0 the next one must begin with
  // the same bytes. Throw Error(peer_lost) when the other end is gone, and what
  // tcp/tls.h says.
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second = {});
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second = {});
  std::size_t write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  short read_events() const;
  short write_events() const;
  // Of a channel: whether a read or write would move something.
  bool can_read() const { return channel_ && channel_->can_read(); }
  bool can_write() const { return channel_ && channel_->can_write(); }
  int fd() const { return socket_.get(); }
  const Fd& socket() const { return socket_; }
  bool valid() const { return socket_.valid(); }
  void close();

 private:
  std::size_t write_encrypted(std::span<const std::byte> first, std::span<const std::byte> second);

  Fd socket_;
  std::unique_ptr<TlsSession> tls_;
  std::optional<Channel> channel_;
};

// The secret of a job and whether its connections are encrypted. Copies are cheap.
class JobKey {
 public:
  // Throws Error(invalid_argument) when asked to encrypt without a secret.
  explicit JobKey(std::string secret = "", bool encrypt = false);

  const std::string& secret() const { return secret_; }
  bool encrypts() const { return context_ != nullptr; }
  Stream open(Fd socket, End end) const;

 private:
  std::string secret_;
  std::shared_ptr<const TlsContext> context_;  // shared by all connections of the job
};

}  // namespace lockstep
