#include "lockstep/launch/launcher.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/env/cpu.h"
#include "lockstep/env/fd.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/listener.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/signals.h"
#include "lockstep/launch/watch.h"

namespace lockstep {
namespace {

constexpr int kSecretBytes = 32;
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

void say(const std::string& text) {
  const std::string line = "lockstep run: " + text + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Descriptors 0–2 must be taken, or a pipe of ours would become a rank's standard stream.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  ::close(fd);
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> settings;
  for (char** setting = environ; *setting; ++setting) settings.emplace_back(*setting);
  return settings;
}

std::string new_secret() {
  std::array<std::uint8_t, kSecretBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != kSecretBytes) {
    fail_errno(errno, "cannot draw a random secret");
  }
  return to_hex(bytes);
}

// Returns the limit as it was, for the ranks.
rlimit raise_open_files(int ranks) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlim_t needed = static_cast<rlim_t>(ranks) * 4 + 64;
  if (before.rlim_max < needed) {
    fail(Code::io, "{} ranks need {} open files, but the limit is {}; raise it with `ulimit -Hn`",
         ranks, needed, before.rlim_max);
  }
  rlimit raised = before;
  raised.rlim_cur = std::max(before.rlim_cur, needed);
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

std::vector<Fd> open_logs(const std::string& folder, int ranks) {
  std::vector<Fd> logs(static_cast<std::size_t>(ranks));
  if (folder.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_errno(error.value(), fmt::format("cannot make the log folder {}", folder));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.log", folder, rank);
    Fd& log = logs[static_cast<std::size_t>(rank)];
    log = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!log.valid()) fail_errno(errno, fmt::format("cannot write {}", path));
  }
  return logs;
}

JobEnvironment describe_job(const LaunchOptions& options, int ranks, int usable_cores,
                            std::uint16_t port) {
  JobEnvironment job;
  job.encrypt = options.encrypt;
  job.ranks = ranks;
  job.port = port;
  job.secret = new_secret();
  job.threads = threads_per_rank(usable_cores, ranks);
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size{};
    job.terminal = job.terminal || ::isatty(fd) == 1;
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) job.columns = size.ws_col;
  }
  return job;
}

std::string start_line(const JobEnvironment& job, int usable_cores, bool pin,
                       std::span<const std::string> inherited) {
  return fmt::format("{} rank{} on {} usable core{}, {}, {}{}, store at 127.0.0.1:{}", job.ranks,
                     job.ranks == 1 ? "" : "s", usable_cores, usable_cores == 1 ? "" : "s",
                     thread_variables(inherited, job.threads).summary,
                     pin ? "pinned" : "not pinned", job.encrypt ? ", encrypted" : "", job.port);
}

}  // namespace

int launch(const LaunchOptions& options) {
  open_standard_streams();
  const char* search_path = std::getenv("PATH");
  const Program program =
      find_program(options.command.front(), search_path ? search_path : kDefaultPath);
  if (!program.problem.empty()) {
    say(program.problem);
    return program.exit_status;
  }
  const int usable_cores = usable_core_count();
  const int ranks = options.ranks > 0 ? options.ranks : std::min(usable_cores, kRanksMax);
  const std::vector<std::string> inherited = inherited_environment();
  const std::vector<int> cores = allowed_cores();
  ChildRequest request;
  request.path = program.path;
  request.arguments = options.command;
  request.open_files = raise_open_files(ranks);
  std::vector<Fd> logs = open_logs(options.log_dir, ranks);
  Listener listener = listen_on_loopback(options.port);
  const JobEnvironment job = describe_job(options, ranks, usable_cores, listener.port);

  SignalInbox signals;
  request.signal_mask = signals.mask_before();
  Guard guard(job_mark(job.secret));
  Watch watch(options, ranks, guard, signals);
  say(start_line(job, usable_cores, options.pin, inherited));
  for (int rank = 0; rank < ranks; ++rank) {
    request.inherited_fd = rank == 0 ? listener.socket.get() : -1;
    request.inherit_input = rank == 0;
    request.environment = rank_environment(inherited, job, rank, request.inherited_fd);
    if (options.pin) request.cores = cores_of_rank(cores, rank, ranks);
    Child child = start_child(request);
    if (child.start_error != 0) {
      say(fmt::format("cannot run {}: {}", program.path, std::strerror(child.start_error)));
      return child.start_error == ENOENT ? 127 : 126;
    }
    if (rank == 0) listener.socket.reset();
    guard.watch(child.pid);
    watch.add(std::move(child), std::move(logs[static_cast<std::size_t>(rank)]));
  }
  return watch.run();
}

}  // namespace lockstep
