#include "lockstep/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/env/cpu.h"
#include "lockstep/launch/pidfd.h"

namespace lockstep {
namespace {

struct Pipe {
  Fd reading, writing;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, "cannot make a pipe for a rank");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// In the new process. Returns the errno that kept the program from running.
int become_rank(const ChildRequest& request, pid_t launcher, int out, int err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // it died before the line above
  if (::dup2(out, STDOUT_FILENO) < 0 || ::dup2(err, STDERR_FILENO) < 0) return errno;
  if (!request.inherit_input) {
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (::dup2(nothing.get(), STDIN_FILENO) < 0) return errno;
  } else if (::isatty(STDIN_FILENO)) {
    // The rank is not in the terminal's foreground: reading then fails instead of stopping it.
    ::signal(SIGTTIN, SIG_IGN);
    ::signal(SIGTTOU, SIG_IGN);
  }
  if (request.inherited_fd >= 0 && ::fcntl(request.inherited_fd, F_SETFD, 0) != 0) return errno;
  if (!request.cores.empty()) pin_this_thread(request.cores);
  ::setrlimit(RLIMIT_NOFILE, &request.open_files);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &request.signal_mask, nullptr);
  const std::vector<char*> environment = pointers(request.environment);
  ::execve(request.path.c_str(), pointers(request.arguments).data(), environment.data());
  if (errno != ENOEXEC) return errno;
  // As execvp does: a file without a known format is a shell script.
  std::vector<std::string> shell = {"sh", request.path};
  shell.insert(shell.end(), request.arguments.begin() + 1, request.arguments.end());
  ::execve("/bin/sh", pointers(shell).data(), environment.data());
  return errno;
}

// 0 when the program has been executed: that closes the pipe.
int read_start_error(const Fd& pipe) {
  int error = 0;
  ssize_t bytes = 0;
  do {
    bytes = ::read(pipe.get(), &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  return bytes == sizeof(error) ? error : 0;
}

}  // namespace

Child start_child(const ChildRequest& request) {
  Pipe out = make_pipe(), err = make_pipe(), status = make_pipe();
  const pid_t launcher = ::getpid();
  Child child;
  child.pid = ::fork();
  if (child.pid < 0) fail_errno(errno, fmt::format("cannot start {}", request.path));
  if (child.pid == 0) {
    int error = EINVAL;
    try {
      error = become_rank(request, launcher, out.writing.get(), err.writing.get());
    } catch (const Error&) {  // pinning
      error = errno;
    }
    [[maybe_unused]] const auto written = ::write(status.writing.get(), &error, sizeof(error));
    ::_exit(127);
  }
  ::setpgid(child.pid, child.pid);  // here too: whichever of the two comes first
  child.handle = open_process(child.pid);
  const int handle_error = errno;
  status.writing.reset();
  child.start_error = read_start_error(status.reading);
  if (child.start_error != 0 || !child.handle.valid()) {
    ::kill(-child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    if (child.start_error == 0) fail_errno(handle_error, "cannot watch a rank's process");
    return child;
  }
  child.out = std::move(out.reading);
  child.err = std::move(err.reading);
  for (const Fd* pipe : {&child.out, &child.err}) ::fcntl(pipe->get(), F_SETFL, O_NONBLOCK);
  return child;
}

}  // namespace lockstep
