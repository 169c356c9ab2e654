#include "tests/launch/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "lockstep/env/cpu.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Ends {
  Fd reading, writing;
};

Ends make_pipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

Ends make_terminal() {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 77;
  EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  ::fcntl(master, F_SETFD, FD_CLOEXEC);
  ::fcntl(slave, F_SETFD, FD_CLOEXEC);
  return {Fd(master), Fd(slave)};
}

std::string new_mark() {
  static std::atomic<int> count{0};
  return fmt::format("LOCKSTEP_LAUNCH_TEST={}-{}", ::getpid(), count++);
}

[[noreturn]] void become_launcher(const std::vector<std::string>& arguments,
                                  const LaunchSetup& setup, const std::string& mark, int out,
                                  int err) {
  ::setsid();
  if (setup.ignored_signal != 0) ::signal(setup.ignored_signal, SIG_IGN);
  if (setup.terminal) ::ioctl(out, TIOCSCTTY, 0);
  if (setup.terminal) ::dup2(out, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    ::unsetenv(name);
  }
  for (std::string setting : setup.environment) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) ::unsetenv(setting.c_str());
    if (equals != std::string::npos) {
      ::setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
  }
  ::setenv(mark.substr(0, mark.find('=')).c_str(), mark.substr(mark.find('=') + 1).c_str(), 1);
  if (!setup.cores.empty()) pin_this_thread(setup.cores);
  if (!setup.cgroup.empty()) std::ofstream(setup.cgroup + "/cgroup.procs") << ::getpid();
  std::vector<std::string> all = {LOCKSTEP_BINARY, "run"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& each : all) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  ::execv(LOCKSTEP_BINARY, pointers.data());
  ::_exit(99);
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

Launch::Launch(const std::vector<std::string>& arguments, const LaunchSetup& setup)
    : mark_(new_mark()), start_(Clock::now()) {
  Ends out = setup.terminal ? make_terminal() : make_pipe();
  Ends err = make_pipe();
  const bool together = setup.terminal || setup.one_pipe;
  pid_ = ::fork();
  if (pid_ == 0) {
    become_launcher(arguments, setup, mark_, out.writing.get(),
                    together ? out.writing.get() : err.writing.get());
  }
  out_pipe_ = std::move(out.reading);
  err_pipe_ = std::move(err.reading);
}

Launch::~Launch() {
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
  if (!ended_) ::waitpid(pid_, nullptr, 0);
}

void Launch::send(int signal) {
  ::kill(pid_, signal);
}

void Launch::type(const std::string& text) {
  EXPECT_EQ(::write(out_pipe_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Launch::read_some(milliseconds limit) {
  if (!out_pipe_.valid() && !err_pipe_.valid()) return false;
  pollfd wanted[] = {{out_pipe_.get(), POLLIN, 0}, {err_pipe_.get(), POLLIN, 0}};
  if (::poll(wanted, 2, static_cast<int>(limit.count())) <= 0) return true;
  const auto take = [](const pollfd& ready, Fd& pipe, std::string& text) {
    if (!ready.revents) return;
    std::array<char, 65536> bytes;
    const ssize_t count = ::read(pipe.get(), bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<std::size_t>(count));
    if (count <= 0) pipe.reset();
  };
  take(wanted[0], out_pipe_, out_);
  take(wanted[1], err_pipe_, err_);
  return out_pipe_.valid() || err_pipe_.valid();
}

void Launch::wait_for_output(const std::string& text, int times) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (occurrences(out_, text) < times) {
    const bool more = read_some(milliseconds(100));
    ASSERT_TRUE(more && Clock::now() < end) << "no '" << text << "' in: " << out_ << err_;
  }
}

const std::string& Launch::wait_for_error(const std::string& text) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (occurrences(err_, text) < 1 && read_some(milliseconds(100)) && Clock::now() < end) {
  }
  EXPECT_GE(occurrences(err_, text), 1) << "no '" << text << "' in: " << err_;
  return err_;
}

Outcome Launch::wait(milliseconds limit) {
  const auto end = Clock::now() + limit;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() >= end) {
      ADD_FAILURE() << "still running after " << limit.count() << " ms: " << out_ << err_;
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      break;
    }
    if (!read_some(milliseconds(5))) std::this_thread::sleep_for(milliseconds(1));
  }
  ended_ = true;
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  while (read_some(milliseconds(1'000))) {
    if (Clock::now() >= end + std::chrono::seconds(2)) {
      ADD_FAILURE() << "its output is still open";
      break;
    }
  }
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = out_;
  outcome.err = err_;
  return outcome;
}

std::vector<pid_t> Launch::processes() const {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == ::getpid()) continue;
    const std::string environment = read_text(entry.path() / "environ");
    if (('\0' + environment).find('\0' + mark_ + '\0') != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool Launch::nothing_left(milliseconds limit) const {
  const auto end = Clock::now() + limit;
  while (!processes().empty()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

Outcome run_launch(const std::vector<std::string>& arguments, const LaunchSetup& setup) {
  Launch launch(arguments, setup);
  Outcome outcome = launch.wait();
  EXPECT_TRUE(launch.nothing_left(milliseconds(0))) << outcome.out << outcome.err;
  return outcome;
}

std::string rank_helper() {
  return RANK_HELPER;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool process_exists(pid_t pid) {
  // A zombie has been killed; that its new parent has not yet taken note is not ours to judge.
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

bool is_listening(int port) {
  const std::string local = fmt::format(" 0100007F:{:04X} ", port);
  for (const std::string& line : lines_of(read_text("/proc/net/tcp"))) {
    if (line.find(local + "00000000:0000 0A ") != std::string::npos) return true;
  }
  return false;
}

int number_after(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size());
}

}  // namespace lockstep::launch_test
