// Signals as something to be read, instead of something that interrupts.
#pragma once

#include <signal.h>

#include <optional>

#include "lockstep/env/fd.h"

namespace lockstep {

// While one exists, SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGTSTP wait to be read, and SIGPIPE is
// ignored; those that were ignored before (nohup) stay so. For a process with one thread.
class SignalInbox {
 public:
  SignalInbox();  // throws Error(io)
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // Readable when next() has something.
  int fd() const { return fd_.get(); }
  // Never blocks.
  std::optional<int> next();
  // Does what SIGTSTP would have done: returns when the process has been continued.
  void suspend_this_process();

  const sigset_t& mask_before() const { return mask_before_; }

 private:
  sigset_t mask_before_{};
  Fd fd_;
};

}  // namespace lockstep
