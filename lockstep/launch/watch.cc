#include "lockstep/launch/watch.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/memory_events.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kSettle{100};
constexpr std::size_t kQueueBytesMax = std::size_t{4} << 20;
constexpr std::size_t kReadBytes = 64 * 1024;
// How long an interrupted launcher waits for a reader of its output that does not read.
constexpr std::chrono::milliseconds kLastWords{300};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

Watch::Watch(const LaunchOptions& options, int ranks, Guard& guard, SignalInbox& signals)
    : options_(options),
      memory_kills_before_(out_of_memory_kills()),
      guard_(guard),
      signals_(signals),
      mixer_(ranks, options.prefix, {::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1}) {}

void Watch::add(Child child, Fd log) {
  ranks_.push_back({std::move(child), std::move(log), {}, {}, {}});
}

int Watch::run() {
  while (!running_ranks().empty()) {
    wait_for_something();
    take_endings();
    take_signals();
    read_output();
    advance_phase();
    writer_.write_some(mixer_.queue());
    check_writer();
  }
  finish();
  return status();
}

std::vector<int> Watch::running_ranks() const {
  std::vector<int> running;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].end) running.push_back(static_cast<int>(i));
  }
  return running;
}

int Watch::timeout_ms() const {
  if (!phase_end_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*phase_end_ - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

void Watch::wait_for_something() {
  std::vector<pollfd> wanted = {{signals_.fd(), POLLIN, 0}};
  const bool room = mixer_.queued_bytes() < kQueueBytesMax;
  for (const Rank& rank : ranks_) {
    if (!rank.end) wanted.push_back({rank.child.handle.get(), POLLIN, 0});
    for (const Fd* pipe : {&rank.child.out, &rank.child.err}) {
      if (room && pipe->valid()) wanted.push_back({pipe->get(), POLLIN, 0});
    }
  }
  if (!mixer_.queue().empty()) {
    wanted.push_back({OutputWriter::fd_of(mixer_.queue().front().stream), POLLOUT, 0});
  }
  ::poll(wanted.data(), wanted.size(), timeout_ms());
}

// Whether it is an end that a lost peer cannot bring about; an uncaught exception aborts.
bool Watch::is_cause(const RankEnd& end) {
  return end.by_signal && end.code != SIGABRT;
}

std::optional<RankEnd> Watch::ending_of(int rank) {
  siginfo_t info{};
  // Not reaped yet: as long as the number is taken, a signal to its group cannot reach a stranger.
  const auto handle = static_cast<id_t>(ranks_[static_cast<std::size_t>(rank)].child.handle.get());
  if (::waitid(P_PIDFD, handle, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    fail_errno(errno, fmt::format("cannot wait for rank {}", rank));
  }
  if (info.si_pid == 0) return {};
  RankEnd end;
  end.rank = rank;
  end.by_signal = info.si_code != CLD_EXITED;
  end.core_dumped = info.si_code == CLD_DUMPED;
  end.code = info.si_status;
  end.after_s = std::chrono::duration<double>(Clock::now() - start_).count();
  if (end.by_signal && end.code == SIGKILL) {
    const std::optional<std::int64_t> kills = out_of_memory_kills();
    end.out_of_memory = kills && memory_kills_before_ && *kills > *memory_kills_before_;
  }
  return end;
}

void Watch::take_endings() {
  std::vector<RankEnd> ends;
  for (const int rank : running_ranks()) {
    if (const auto end = ending_of(rank)) ends.push_back(*end);
  }
  std::ranges::sort(ends, {},
                    [](const RankEnd& end) { return std::tuple(!is_cause(end), end.rank); });
  for (const RankEnd& end : ends) record(end);
}

void Watch::record(const RankEnd& end) {
  ranks_[static_cast<std::size_t>(end.rank)].end = end;
  const bool ended_by_launcher = phase_ == Phase::stopping || phase_ == Phase::killing;
  const int code = exit_status_of(end);
  if (interrupted_by_ != 0 || reader_gone_ ||
      (ended_by_launcher && (code == 128 + SIGTERM || code == 128 + SIGKILL))) {
    stopped_.push_back(end.rank);
    return;
  }
  if (!end.failed()) return;
  // A killed process closes its sockets before it can be seen to be dead: those who miss it may be
  // seen to end first.
  const auto follows = [&](int rank) {
    return !is_cause(*ranks_[static_cast<std::size_t>(rank)].end);
  };
  const bool may_be_late = is_cause(end) && phase_ == Phase::settling;
  failures_.insert(may_be_late ? std::ranges::find_if(failures_, follows) : failures_.end(),
                   end.rank);
  if (phase_ != Phase::running) return;
  phase_ = Phase::settling;
  phase_end_ = Clock::now() + kSettle;
}

void Watch::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGTSTP) {
      suspend();
    } else {
      interrupt(*signal);
    }
  }
}

void Watch::interrupt(int signal) {
  if (phase_ == Phase::stopping || phase_ == Phase::killing) {
    kill_all();
    return;
  }
  if (failures_.empty()) interrupted_by_ = signal;
  mixer_.notice(fmt::format("lockstep run: {}: stopping {}; a second one kills at once",
                            signal_name(signal), rank_list(running_ranks())));
  begin_stopping(signal);
}

void Watch::suspend() {
  signal_all(SIGSTOP);
  signals_.suspend_this_process();
  signal_all(SIGCONT);
}

void Watch::begin_stopping(int signal) {
  phase_ = Phase::stopping;
  phase_end_ = Clock::now() + options_.grace;
  signal_all(signal);
  signal_all(SIGCONT);  // a stopped process would not see it
}

void Watch::kill_all() {
  if (phase_ == Phase::killing) return;
  phase_ = Phase::killing;
  phase_end_.reset();
  killed_ = running_ranks();
  signal_all(SIGKILL);
}

void Watch::signal_all(int signal) {
  for (const Rank& rank : ranks_) ::kill(-rank.child.pid, signal);
}

void Watch::advance_phase() {
  if (!phase_end_ || Clock::now() < *phase_end_) return;
  if (phase_ == Phase::settling) {
    begin_stopping(SIGTERM);
  } else {
    kill_all();
  }
}

void Watch::read_output() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      if (mixer_.queued_bytes() < kQueueBytesMax) read_pipe(static_cast<int>(i), stream);
    }
  }
}

// True when there may be more to read.
bool Watch::read_pipe(int rank, Stream stream) {
  Rank& source = ranks_[static_cast<std::size_t>(rank)];
  Fd& pipe = stream == Stream::out ? source.child.out : source.child.err;
  if (!pipe.valid()) return false;
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(pipe.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (count <= 0) {
    pipe.reset();
    return false;
  }
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  source.tail.add(stream, text);
  mixer_.add(rank, stream, text);
  write_log(rank, source.joiner.add(stream, text));
  return true;
}

void Watch::write_log(int rank, std::string_view bytes) {
  Fd& log = ranks_[static_cast<std::size_t>(rank)].log;
  while (log.valid() && !bytes.empty()) {
    const ssize_t written = ::write(log.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      mixer_.notice(fmt::format("lockstep run: cannot write {}/rank-{}.log: {}; it ends here",
                                options_.log_dir, rank, std::strerror(errno)));
      log.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Watch::check_writer() {
  const std::optional<int> error = writer_.take_error(Stream::out);
  if (!error) return;
  if (*error != EPIPE) {
    mixer_.notice(
        fmt::format("lockstep run: cannot write standard output: {}; the job goes on "
                    "without it",
                    std::strerror(*error)));
  } else if (phase_ == Phase::running) {
    reader_gone_ = true;
    begin_stopping(SIGTERM);
  }
}

void Watch::finish() {
  guard_.finish();  // before reaping, which frees the numbers of the process groups
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    while (read_pipe(rank, Stream::out)) {
    }
    while (read_pipe(rank, Stream::err)) {
    }
    mixer_.finish(rank);
    write_log(rank, ranks_[i].joiner.finish());
  }
  reap();
  report();
  flush();
}

void Watch::reap() {
  for (Rank& rank : ranks_) {
    rusage usage{};
    while (::wait4(rank.child.pid, nullptr, 0, &usage) < 0 && errno == EINTR) {
    }
    rank.end->peak_memory_bytes = std::int64_t{usage.ru_maxrss} * 1024;
    rank.end->last_lines = rank.tail.lines();
  }
}

void Watch::report() {
  std::ranges::sort(stopped_);
  if (!failures_.empty()) {
    std::vector<RankEnd> ends;
    for (const int rank : failures_) ends.push_back(*ranks_[static_cast<std::size_t>(rank)].end);
    for (const std::string& line : failure_report(host_name(), ends, stopped_)) {
      mixer_.notice(line);
    }
  }
  if (!killed_.empty()) {
    mixer_.notice(
        fmt::format("lockstep run: killed {}, which did not end when told to", rank_list(killed_)));
  }
}

void Watch::flush() {
  const auto end = Clock::now() + kLastWords;
  bool hurry = interrupted_by_ != 0;
  for (;;) {
    writer_.write_some(mixer_.queue());
    check_writer();
    if (mixer_.queue().empty()) return;
    if (hurry && Clock::now() >= end) return;
    pollfd wanted[] = {
        {signals_.fd(), POLLIN, 0},
        {OutputWriter::fd_of(mixer_.queue().front().stream), POLLOUT, 0},
    };
    ::poll(wanted, 2, hurry ? 20 : -1);
    while (const std::optional<int> signal = signals_.next()) {
      if (*signal == SIGTSTP) {
        signals_.suspend_this_process();
      } else {
        return;
      }
    }
  }
}

int Watch::status() const {
  if (!failures_.empty()) {
    return exit_status_of(*ranks_[static_cast<std::size_t>(failures_.front())].end);
  }
  if (interrupted_by_ != 0) return 128 + interrupted_by_;
  return reader_gone_ ? 128 + SIGPIPE : 0;
}

}  // namespace lockstep
