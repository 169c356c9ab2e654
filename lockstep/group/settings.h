// What a process must know to join its group, read once from the environment and checked there.
// docs/settings.md lists every variable with unit, default and bounds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct Settings {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  // Shared by all ranks of the job and proved on every connection. Empty: a job without a secret.
  std::string secret;
  // A listening socket for the store that rank 0 inherited; -1: rank 0 binds master_addr:master_port.
  int store_fd = -1;
  // How long joining may take, and how long one operation may take.
  std::chrono::milliseconds join_timeout{120'000};
  std::chrono::milliseconds operation_timeout{300'000};
  // Which links ranks of one host use: "auto" (shared memory), or "tcp" to force sockets.
  std::string transport = "auto";

  // Looks a variable up; absent is empty.
  using Lookup = std::function<std::optional<std::string>(const char* name)>;

  // Throws Error(invalid_argument) that names the variable, the value seen and what is allowed.
  // Without RANK and WORLD_SIZE it is a world of one only if none of the group's variables is set.
  static Settings from(const Lookup& lookup);
  static Settings from_environment();
};

}  // namespace lockstep
