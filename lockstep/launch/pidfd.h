// System calls on processes by descriptor. glibc 2.36 declares them without C linkage, so that C++
// cannot call its own functions.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/env/fd.h"

namespace lockstep {

// Readable when process `pid` has ended; close-on-exec. Invalid, with errno, on failure.
inline Fd open_process(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

inline bool signal_process(const Fd& process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

}  // namespace lockstep
