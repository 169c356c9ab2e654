// For tests: a whole job inside one process, each rank a thread with a real group.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

// Runs `body` on every rank of a job with the settings `common`; the text of what each threw, by
// rank ("" for nothing). `hosts`, by rank: the ranks pretend to be on those; empty: all on one.
inline std::vector<std::string> run_job(int ranks, const Settings& common,
                                        const std::function<void(Group&)>& body,
                                        const std::vector<int>& hosts = {}) {
  Fd listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_address(listener).port;
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    Settings settings = common;
    settings.rank = rank;
    settings.world_size = ranks;
    settings.master_port = port;
    settings.secret = "test";
    if (!hosts.empty()) settings.host = "host " + std::to_string(hosts[index]);
    if (rank == 0 && ranks > 1) settings.store_fd = listener.release();
    threads.emplace_back([settings, &body, &error = errors[index]] {
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

inline std::vector<std::string> run_ranks(
    int ranks, Transport transport, const std::function<void(Group&)>& body,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000)) {
  Settings settings;
  settings.transport = transport;
  settings.join_timeout = timeout;
  settings.operation_timeout = timeout;
  return run_job(ranks, settings, body);
}

}  // namespace lockstep
