#include "lockstep/transport/tcp/greeting.h"

#include <poll.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

bool Greeting::progress() {
  try {
    return exchange();
  } catch (const Error&) {
    say_why_not();
    throw;
  }
}

bool Greeting::exchange() {
  while (true) {
    handshake_.advance(in_, out_);
    if (!flush()) return false;
    if (handshake_.done()) return true;
    std::array<char, kAnswerBytes> bytes{};
    const std::size_t wanted = handshake_.awaited_bytes() - in_.size();
    const auto to = std::as_writable_bytes(std::span(bytes.data(), wanted));
    const std::size_t got = stream_.read(to);
    if (got == 0) return false;
    in_.append(bytes.data(), got);
  }
}

short Greeting::wanted_events() const {
  return out_.empty() ? stream_.read_events() : stream_.write_events();
}

bool Greeting::flush() {
  while (!out_.empty()) {
    const std::size_t put = stream_.write(out_);
    if (put == 0) return false;
    out_.erase(0, put);
  }
  return true;
}

void Greeting::say_why_not() {
  try {
    flush();
  } catch (const Error&) {
    // It is gone already.
  }
  discard_unread(stream_.socket());
}

Stream greet(Stream stream, Handshake handshake, const Deadline& deadline) {
  Greeting greeting(std::move(stream), std::move(handshake));
  while (!greeting.progress()) {
    if (deadline.passed()) {
      fail(Code::timeout, "{} did not answer within {:.1f} s",
           peer_address(greeting.stream().socket()).text(), deadline.elapsed_s());
    }
    pollfd entry{greeting.stream().fd(), greeting.wanted_events(), 0};
    ::poll(&entry, 1, deadline.remaining_ms());
  }
  return greeting.take();
}

}  // namespace lockstep
