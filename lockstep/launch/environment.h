// The environment variables that a rank gets from the launcher. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct JobEnvironment {
  int ranks = 1;
  std::uint16_t port = 0;
  std::string secret;
  bool encrypt = false;
  int threads = 1;        // a rank's share; used where the user has not set a number
  bool terminal = false;  // the launcher prints on a terminal
  int columns = 0;        // its width; 0: unknown
};

// The variables that set a library's number of threads.
struct ThreadVariables {
  std::vector<std::string> settings;  // "NAME=value", for those the user has not set
  std::string summary;                // "2 threads each" or "OMP_NUM_THREADS=3 as set"
};

// A user's OMP_NUM_THREADS also holds for the other libraries unless they have a number of their
// own.
ThreadVariables thread_variables(std::span<const std::string> inherited, int threads);

// `inherited` without what belongs to another job, and with what belongs to this one. `store_fd` is
// the listening socket's number in the rank; -1: it has none.
std::vector<std::string> rank_environment(std::span<const std::string> inherited,
                                          const JobEnvironment& job, int rank, int store_fd);

// The "NAME=value" that marks all processes of the job.
std::string job_mark(const std::string& secret);

}  // namespace lockstep
