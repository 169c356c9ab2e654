// For tests: a whole job inside one process, each rank a thread with a real group.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

// Runs `body` on every rank; the text of what each threw, by rank ("" for nothing).
inline std::vector<std::string> run_ranks(
    int ranks, Transport transport, const std::function<void(Group&)>& body,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000)) {
  Fd listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_address(listener).port;
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    Settings settings;
    settings.rank = rank;
    settings.world_size = ranks;
    settings.master_port = port;
    settings.secret = "test";
    settings.transport = transport;
    settings.join_timeout = timeout;
    settings.operation_timeout = timeout;
    if (rank == 0 && ranks > 1) settings.store_fd = listener.release();
    threads.emplace_back([settings, &body, &error = errors[static_cast<std::size_t>(rank)]] {
      try {
        Group group(settings);
        body(group);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lockstep
