#include "lockstep/launch/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/pidfd.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kSweepsMax = 200;
constexpr std::chrono::milliseconds kSweepPause{5};
constexpr std::size_t kEnvironmentBytesMax = std::size_t{8} << 20;

bool environment_has(const fs::path& process, const std::string& mark) {
  const Fd file(::open((process / "environ").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  std::string text(1, '\0');  // every variable stands between two zero bytes
  char part[16 * 1024];
  while (text.size() < kEnvironmentBytesMax) {
    const ssize_t bytes = ::read(file.get(), part, sizeof(part));
    if (bytes <= 0) break;
    text.append(part, static_cast<std::size_t>(bytes));
  }
  return text.find('\0' + mark + '\0') != std::string::npos;
}

// How many marked processes were found and killed.
int sweep(const std::string& mark) {
  int found = 0;
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const auto pid = parse_integer(process->path().filename().string(), 1, 1 << 30);
    struct stat owner {};
    if (!pid || *pid == ::getpid() || ::stat(process->path().c_str(), &owner) != 0) continue;
    if (owner.st_uid != ::geteuid() && ::geteuid() != 0) continue;
    // Opened before looking, so that the signal cannot reach a later process of the same number.
    const Fd handle = open_process(static_cast<pid_t>(*pid));
    if (!handle.valid() || !environment_has(process->path(), mark)) continue;
    if (signal_process(handle, SIGKILL)) ++found;
  }
  return found;
}

std::vector<pid_t> read_groups_until_closed(int pipe) {
  std::vector<pid_t> groups;
  pid_t group = 0;
  for (;;) {
    const ssize_t bytes = ::read(pipe, &group, sizeof(group));
    if (bytes == sizeof(group)) {
      groups.push_back(group);
    } else if (bytes >= 0 || errno != EINTR) {
      return groups;
    }
  }
}

[[noreturn]] void guard_main(int pipe, const std::string& mark) {
  // A session of its own: what ends the launcher's process group must not end its guard.
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "lockstep-guard");
  // Nothing of the launcher's may stay open because of the guard: no output, no listening socket.
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDIN_FILENO + 1, ~0U, 0);
  if (::chdir("/") != 0) ::_exit(1);
  kill_job(read_groups_until_closed(STDIN_FILENO), mark);
  ::_exit(0);
}

}  // namespace

void kill_job(std::span<const pid_t> groups, const std::string& mark) {
  for (int i = 0; i < kSweepsMax; ++i) {
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    if (sweep(mark) == 0) return;
    std::this_thread::sleep_for(kSweepPause);
  }
}

Guard::Guard(std::string mark) : mark_(std::move(mark)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, "cannot make the guard's pipe");
  Fd reading(ends[0]);
  pipe_ = Fd(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) fail_errno(errno, "cannot start the guard process");
  if (pid_ == 0) guard_main(reading.get(), mark_);
}

Guard::~Guard() {
  finish();
}

void Guard::watch(pid_t group) {
  groups_.push_back(group);
  // If somebody killed the guard, finish() does its work.
  [[maybe_unused]] const auto written = ::write(pipe_.get(), &group, sizeof(group));
}

void Guard::finish() {
  if (pid_ < 0) return;
  pipe_.reset();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) kill_job(groups_, mark_);
}

}  // namespace lockstep
