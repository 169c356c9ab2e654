#include "lockstep/transport/tcp/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kIdentity = "lockstep job";
constexpr std::string_view kKeyLabel = "lockstep tls 1.3 external psk";
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
constexpr std::size_t kBytesMax = 1 << 30;  // of one read or write, which OpenSSL counts in int

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string derive_key(const std::string& secret) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), raw(kKeyLabel),
           kKeyLabel.size(), digest.data(), &length) == nullptr) {
    fail(Code::io, "HMAC-SHA256 is not available from the system's OpenSSL");
  }
  return {reinterpret_cast<const char*>(digest.data()), length};
}

// The key as OpenSSL wants it; null when there is no memory.
SSL_SESSION* session_of(SSL* ssl) {
  const auto& key = *static_cast<const std::string*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, raw(key), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* bytes,
            SSL_SESSION** session) {
  *session = nullptr;
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;
  *identity = raw(kIdentity);
  *bytes = kIdentity.size();
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
  const std::string_view asked(reinterpret_cast<const char*>(identity), bytes);
  *session = asked == kIdentity ? session_of(ssl) : nullptr;
  return 1;
}

// OpenSSL's own sockets raise SIGPIPE.
int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int write_socket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto put =
      ::send(socket_of(bio), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}

int read_socket(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(socket_of(bio), bytes, static_cast<std::size_t>(count), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control_socket(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

bool is_other_secret(int reason) {
  constexpr int kReasons[] = {
      SSL_R_BINDER_DOES_NOT_VERIFY,         SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER,
      SSL_R_TLSV1_ALERT_DECRYPT_ERROR,      SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE,
      SSL_R_CERTIFICATE_VERIFY_FAILED,      SSL_R_NO_SHARED_CIPHER,
      SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM};
  return std::ranges::find(kReasons, reason) != std::end(kReasons);
}

bool is_in_clear(int reason) {
  constexpr int kReasons[] = {SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST,
                              SSL_R_HTTPS_PROXY_REQUEST,  SSL_R_PACKET_LENGTH_TOO_LONG,
                              SSL_R_BAD_RECORD_TYPE,      SSL_R_UNSUPPORTED_PROTOCOL,
                              SSL_R_UNEXPECTED_MESSAGE,   SSL_R_LENGTH_TOO_SHORT};
  return std::ranges::find(kReasons, reason) != std::end(kReasons);
}

// OpenSSL says nothing to whom it takes for another protocol's client; ours understands this.
void send_alert(int socket) {
  constexpr std::string_view kProtocolVersionAlert("\x15\x03\x03\x00\x02\x02\x46", 7);
  [[maybe_unused]] const auto put =
      ::send(socket, kProtocolVersionAlert.data(), kProtocolVersionAlert.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT);
}

[[noreturn]] void fail_tls(const SSL* ssl, int socket, unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  if (SSL_is_init_finished(ssl) == 0) {
    if (is_other_secret(reason)) {
      fail(Code::unauthenticated,
           "the other end does not know this job's secret: LOCKSTEP_SECRET must be the same on all "
           "ranks, and the port must belong to this job");
    }
    if (is_in_clear(reason)) {
      if (SSL_is_server(ssl) == 1) send_alert(socket);
      fail(Code::unsupported,
           "this end encrypts, the other end does not: LOCKSTEP_ENCRYPT must be the same on all "
           "ranks");
    }
  }
  std::array<char, 256> text{};
  ERR_error_string_n(error, text.data(), text.size());
  fail(Code::corrupt, "the encryption of a connection is broken: {}", text.data());
}

}  // namespace

TlsContext::TlsContext(const std::string& secret)
    : key_(derive_key(secret)),
      socket_method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "lockstep socket")),
      context_(SSL_CTX_new(TLS_method())) {
  if (socket_method_ == nullptr || context_ == nullptr ||
      SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") != 1) {
    SSL_CTX_free(context_);
    BIO_meth_free(socket_method_);
    fail(Code::io, "LOCKSTEP_ENCRYPT=1: the system's OpenSSL has no TLS 1.3");
  }
  BIO_meth_set_write(socket_method_, write_socket);
  BIO_meth_set_read(socket_method_, read_socket);
  BIO_meth_set_ctrl(socket_method_, control_socket);
  SSL_CTX_set_app_data(context_, const_cast<std::string*>(&key_));
  SSL_CTX_set_psk_use_session_callback(context_, use_key);
  SSL_CTX_set_psk_find_session_callback(context_, find_key);
  // A ticket that nobody reads would turn an orderly close into a reset, which loses bytes.
  SSL_CTX_set_num_tickets(context_, 0);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(socket_method_);
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int socket, End end)
    : context_(std::move(context)), socket_(socket), read_events_(POLLIN), write_events_(POLLOUT) {
  ssl_ = SSL_new(context_->context_);
  BIO* bio = BIO_new(context_->socket_method_);
  if (ssl_ == nullptr || bio == nullptr) {
    SSL_free(ssl_);
    BIO_free(bio);
    fail(Code::io, "no memory for an encrypted connection");
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket_)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (end == End::client) {
    SSL_set_connect_state(ssl_);
    // The key alone counts: a server that offers a certificate instead has no issuer that we trust.
    SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

TlsSession::~TlsSession() {
  SSL_free(ssl_);
}

std::size_t TlsSession::read(std::span<std::byte> to) {
  if (to.empty()) return 0;
  ERR_clear_error();
  errno = 0;
  const int got = SSL_read(ssl_, to.data(), static_cast<int>(std::min(to.size(), kBytesMax)));
  read_events_ = got > 0 ? POLLIN : events_after(got);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

std::size_t TlsSession::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  ERR_clear_error();
  errno = 0;
  const int put =
      SSL_write(ssl_, bytes.data(), static_cast<int>(std::min(bytes.size(), kBytesMax)));
  write_events_ = put > 0 ? POLLOUT : events_after(put);
  return put > 0 ? static_cast<std::size_t>(put) : 0;
}

short TlsSession::events_after(int result) const {
  const int error_number = errno;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return POLLIN;
    case SSL_ERROR_WANT_WRITE:
      return POLLOUT;
    case SSL_ERROR_ZERO_RETURN:
      fail(Code::peer_lost, "closed by the other end");
    case SSL_ERROR_SYSCALL:
      fail(Code::peer_lost, "{}",
           error_number == 0 ? "closed by the other end" : std::strerror(error_number));
    default:
      break;
  }
  const unsigned long error = ERR_peek_error();
  if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    fail(Code::peer_lost, "closed by the other end");
  }
  fail_tls(ssl_, socket_, error);
}

}  // namespace lockstep
