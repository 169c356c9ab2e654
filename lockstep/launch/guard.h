// A small process that ends a job's processes when the launcher is gone, however it went.
//
// It holds the reading end of a pipe whose only writing end the launcher has: when that closes, it
// kills the process groups it was told of and every process whose environment carries the job's
// secret (what a rank started in another session is found that way), and exits.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/env/fd.h"

namespace lockstep {

class Guard {
 public:
  // Forks; call it while the process has one thread and before the ranks start. `mark` is the
  // "NAME=value" that every process of the job has in its environment. Throws Error(io).
  explicit Guard(std::string mark);
  // As finish().
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // `group` is to be killed too. Its leader must not be reaped before finish().
  void watch(pid_t group);

  // Kills what is left of the job and returns when that is done. Blocks for some milliseconds, at
  // most about a second for processes that the kernel cannot end at once.
  void finish();

 private:
  const std::string mark_;
  std::vector<pid_t> groups_;
  Fd pipe_;
  pid_t pid_ = -1;
};

// What a guard does at the end: SIGKILL to `groups` and to all processes marked with `mark`.
void kill_job(std::span<const pid_t> groups, const std::string& mark);

}  // namespace lockstep
