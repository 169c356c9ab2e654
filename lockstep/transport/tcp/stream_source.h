// Where a link's stream comes from once the first message is due.
#pragma once

#include <optional>

#include "lockstep/transport/tcp/stream.h"

namespace lockstep {

// Thread rule: one thread at a time (that of the link). Nothing here blocks.
class StreamSource {
 public:
  virtual ~StreamSource() = default;

  // Gets on with connecting; the greeted stream when it is there. Throws Error(peer_lost) when the
  // other end cannot be reached or comes no more, and what tcp/greeting.h says.
  virtual std::optional<Stream> progress() = 0;

  // What poll(2) should watch meanwhile.
  virtual int fd() const = 0;
  virtual short wanted_events() const = 0;
};

}  // namespace lockstep
