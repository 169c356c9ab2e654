// The handshake carried over a stream, without blocking.
#pragma once

#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/transport/handshake.h"
#include "lockstep/transport/tcp/stream.h"

namespace lockstep {

// Thread rule: one thread at a time.
class Greeting {
 public:
  Greeting(Stream stream, Handshake handshake)
      : stream_(std::move(stream)), handshake_(std::move(handshake)) {}

  // Moves what can be moved now; true when the other end has proved itself. Reads not one byte
  // beyond. Throws what handshake.h and stream.h say.
  bool progress();
  // Until progress() is true.
  short wanted_events() const;

  const Stream& stream() const { return stream_; }
  const Handshake& handshake() const { return handshake_; }
  // The greeted stream; the greeting is over.
  Stream take() { return std::move(stream_); }

 private:
  bool exchange();
  bool flush();
  void say_why_not();

  Stream stream_;
  Handshake handshake_;
  std::string in_;
  std::string out_;
};

// The whole of it, blocking. Throws Error(timeout), too.
Stream greet(Stream stream, Handshake handshake, const Deadline& deadline);

}  // namespace lockstep
