// The listening socket of the job's store, made by the launcher and handed to rank 0.
#pragma once

#include <cstdint>

#include "lockstep/env/fd.h"

namespace lockstep {

struct Listener {
  Fd socket;  // close-on-exec
  std::uint16_t port = 0;
};

// Listens on 127.0.0.1:`port`; 0 takes a free one. A port whose last connections are in TIME_WAIT
// is free. Throws Error(io): for a port in use, with the holder where it can be seen.
Listener listen_on_loopback(std::uint16_t port);

}  // namespace lockstep
