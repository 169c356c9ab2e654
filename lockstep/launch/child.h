// Starting one rank.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/env/fd.h"

namespace lockstep {

struct ChildRequest {
  std::string path;                      // what to execute
  std::vector<std::string> arguments;    // the program's name first
  std::vector<std::string> environment;  // "NAME=value"
  std::vector<int> cores;                // empty: not pinned
  int inherited_fd = -1;                 // the one descriptor beside 0–2 that it keeps
  bool inherit_input = false;            // the launcher's standard input; otherwise /dev/null
  sigset_t signal_mask{};
  rlimit open_files{};
};

struct Child {
  int start_error = 0;  // errno that kept the program from being executed; nothing else holds then
  pid_t pid = -1;       // also its process group
  Fd handle;            // a pidfd: readable when the process has ended
  Fd out, err;          // reading ends, non-blocking
};

// Starts it as the leader of a process group of its own, to be killed by the kernel if the launcher
// dies. Returns when it has been executed, or start_error. Throws Error(io) for want of processes,
// descriptors and the like.
Child start_child(const ChildRequest& request);

}  // namespace lockstep
