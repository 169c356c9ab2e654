// What a process must know to join its group, read once from the environment and checked there.
// docs/settings.md lists every variable with unit, default and bounds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lockstep/plan/cost.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

// Which links ranks of one host use.
enum class Transport : std::uint8_t {
  automatic,  // shared memory if all ranks are on one host, else TCP
  shm,        // shared memory, or Error(unsupported) naming a rank that is elsewhere
  tcp,        // TCP always
};

struct Settings {
  int rank = 0;
  int world_size = 1;
  // As the launcher counts them; empty: not told. The size is checked against what the ranks find.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  // Shared by all ranks of the job and proved on every connection. Empty: a job without a secret.
  std::string secret;
  // Whether every connection is encrypted, with a key from the secret.
  bool encrypt = false;
  // A listening socket for the store that rank 0 inherited; -1: rank 0 binds
  // master_addr:master_port.
  int store_fd = -1;
  // How long joining may take, and how long one operation may take.
  std::chrono::milliseconds join_timeout{120'000};
  std::chrono::milliseconds operation_timeout{300'000};
  // After so long without a move in an operation, who waits for whom is logged.
  std::chrono::milliseconds stall_after{10'000};
  // Where the job's folder of flight records is made when the group fails; empty: none is written.
  std::string record_folder;
  Transport transport = Transport::automatic;
  // Ranks share memory exactly when their hosts have one name. Empty: this machine's, as found; a
  // name is given where one machine stands for several.
  std::string host;
  // The network interface, or the address of one, that connections between ranks use; empty: that
  // of the route to the master.
  std::string interface;
  // Algorithms asked for by name, by operation; where one cannot be used, the operation is refused.
  std::map<Operation, std::string> algorithms;
  // Whether sums may be added in an order that depends on the algorithm.
  Order order = Order::canonical;
  // What this machine's messages and memory cost (`lockstep tune`). Rank 0's count for the whole
  // job.
  Prices prices;
  // Threads this rank computes with (OMP_NUM_THREADS); 0: not told, as many as it has cores.
  int compute_threads = 0;

  // Looks a variable up; absent is empty.
  using Lookup = std::function<std::optional<std::string>(const char* name)>;

  // Throws Error(invalid_argument) that names the variable, the value seen and what is allowed.
  // A world of one only if none of the group's variables is set.
  static Settings from(const Lookup& lookup);
  static Settings from_environment();
};

// The prices in a file that `lockstep tune` wrote. Throws Error(invalid_argument) that names
// `variable`, the file, and the key that is wrong.
Prices read_prices(const std::string& variable, const std::string& file);

}  // namespace lockstep
