#include "lockstep/transport/tcp/dialer.h"

#include <poll.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {

Dialer::Dialer(SocketAddress to, std::string own_host, const Hello& hello, JobKey key)
    : to_(std::move(to)), own_host_(std::move(own_host)), hello_(hello), key_(std::move(key)) {}

std::optional<Stream> Dialer::progress() {
  while (true) {
    if (!greeting_ && !connected()) return std::nullopt;
    try {
      if (!greeting_->progress()) return std::nullopt;
      return greeting_->take();
    } catch (const Error& error) {
      greeting_.reset();
      const std::string between = fmt::format("{} from {}", to_.text(), own_host_);
      if (error.code() != Code::peer_lost) fail(error.code(), "{}: {}", between, error.what());
      if (attempts_ == kAttemptsMax) {
        fail(Code::peer_lost, "{}, in {} attempts: {}", between, attempts_, error.what());
      }
    }
  }
}

bool Dialer::connected() {
  if (!socket_.valid()) {
    ++attempts_;
    socket_ = start_connect(to_, own_host_);
  }
  const std::optional<int> error = connect_result(socket_);
  if (!error) return false;
  if (*error != 0) {
    fail(Code::peer_lost, "{} from {}: {}", to_.text(), own_host_, std::strerror(*error));
  }
  greeting_.emplace(key_.open(std::move(socket_), End::client),
                    Handshake::as_client(hello_, key_.secret()));
  return true;
}

int Dialer::fd() const {
  return greeting_ ? greeting_->stream().fd() : socket_.get();
}

short Dialer::wanted_events() const {
  return greeting_ ? greeting_->wanted_events() : static_cast<short>(POLLOUT);
}

}  // namespace lockstep
