#include "lockstep/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

SignalInbox::SignalInbox() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaddset(&wanted, signal);
  }
  ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.valid()) fail_errno(errno, "cannot receive signals");
}

SignalInbox::~SignalInbox() {
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalInbox::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return {};
  return static_cast<int>(info.ssi_signo);
}

void SignalInbox::suspend_this_process() {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace lockstep
