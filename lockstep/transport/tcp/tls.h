// TLS 1.3 keyed by the job's secret (an external pre-shared key with an ephemeral key exchange,
// RFC 8446 section 2.2; TLS_AES_128_GCM_SHA256), without certificates. One session a connection.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace lockstep {

// Which end of a connection: who has connected, or who has accepted.
enum class End { client, server };

// What the sessions of a job have in common. Thread rule: any thread.
class TlsContext {
 public:
  // Throws Error(io) where OpenSSL lacks TLS 1.3.
  explicit TlsContext(const std::string& secret);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  const std::string key_;
  bio_method_st* socket_method_ = nullptr;
  ssl_ctx_st* context_ = nullptr;
};

// Reads and writes a socket that does not block, and that must outlive it; the first ones carry out
// the handshake. Thread rule: one thread at a time.
class TlsSession {
 public:
  // `context` is shared by all sessions, whichever ends last.
  TlsSession(std::shared_ptr<const TlsContext> context, int socket, End end);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Bytes moved; 0: none now, see read_events() and write_events(). After a write of 0 the next
  // write must begin with the same bytes. Throw Error(peer_lost) when the other end is gone,
  // unauthenticated when it has another secret, unsupported when it does not encrypt, corrupt when
  // somebody has meddled.
  std::size_t read(std::span<std::byte> to);
  std::size_t write(std::span<const std::byte> bytes);

  // What poll(2) must report before the next read or write gets further.
  short read_events() const { return read_events_; }
  short write_events() const { return write_events_; }

 private:
  short events_after(int result) const;

  const std::shared_ptr<const TlsContext> context_;
  const int socket_;
  ssl_st* ssl_ = nullptr;
  short read_events_;
  short write_events_;
};

}  // namespace lockstep
