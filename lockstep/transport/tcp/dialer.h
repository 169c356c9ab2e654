// Dialer: connects to the listener of a peer.
//
//   idle ──progress()──▶ connecting ──▶ greeting ──▶ done
//                            ▲              │ dropped by a peer that did not get to us in time
//                            └──────────────┘ (kAttemptsMax times)
#pragma once

#include <optional>
#include <string>

#include "lockstep/transport/tcp/greeting.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/tcp/stream_source.h"

namespace lockstep {

class Dialer final : public StreamSource {
 public:
  static constexpr int kAttemptsMax = 5;

  // Connects from `own_host`, a numeric address of this host. Nothing happens before progress().
  Dialer(SocketAddress to, std::string own_host, const Hello& hello, JobKey key);

  std::optional<Stream> progress() override;
  int fd() const override;
  short wanted_events() const override;

 private:
  bool connected();

  const SocketAddress to_;
  const std::string own_host_;
  const Hello hello_;
  const JobKey key_;
  int attempts_ = 0;
  Fd socket_;  // connecting
  std::optional<Greeting> greeting_;
};

}  // namespace lockstep
