// The program that the launcher's tests run as ranks: `rank_helper MODE`.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/env/cpu.h"
#include "tests/launch/chatter.h"

namespace lockstep::launch_test {
namespace {

int number_in(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : -1;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) std::exit(90);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void say(const std::string& text) {
  write_all(STDOUT_FILENO, text + "\n");
}

int chatter() {
  const int rank = number_in("RANK");
  for (int index = 0; index < kChatterLines; ++index) {
    std::string line = chatter_line(rank, index);
    if (index + 1 < kChatterLines) line += '\n';
    const int fd = goes_to_stderr(index) ? STDERR_FILENO : STDOUT_FILENO;
    const std::size_t third = line.size() / 3;
    write_all(fd, std::string_view(line).substr(0, third));
    write_all(fd, std::string_view(line).substr(third, third));
    write_all(fd, std::string_view(line).substr(2 * third));
  }
  return 0;
}

// Prints what the launcher gave this rank.
int where() {
  std::string cores;
  for (const int core : allowed_cores()) cores += fmt::format(" {}", core);
  const auto text = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "-";
  };
  say(fmt::format(
      "rank={} world={} local={}/{} addr={} omp={} openblas={} mkl={} terminal={} "
      "cores={} secret={}",
      text("RANK"), text("WORLD_SIZE"), text("LOCAL_RANK"), text("LOCAL_WORLD_SIZE"),
      text("MASTER_ADDR"), text("OMP_NUM_THREADS"), text("OPENBLAS_NUM_THREADS"),
      text("MKL_NUM_THREADS"), text("LOCKSTEP_TERMINAL"), cores, text("LOCKSTEP_SECRET")));
  return 0;
}

int listening_sockets_held() {
  int held = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int listening = 0;
    socklen_t bytes = sizeof(listening);
    const int result = ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes);
    if (result == 0 && listening) ++held;
  }
  return held;
}

// Rank 0 accepts on the socket it inherited, the others connect to it.
int meet() {
  const int rank = number_in("RANK");
  if (listening_sockets_held() != (rank == 0 ? 1 : 0)) return 91;
  if (rank == 0) {
    for (int i = 1; i < number_in("WORLD_SIZE"); ++i) {
      const int peer = ::accept(number_in("LOCKSTEP_STORE_FD"), nullptr, nullptr);
      if (peer < 0) return 92;
      ::close(peer);  // closing first leaves the port in TIME_WAIT
    }
    say("all met");
    return 0;
  }
  if (std::getenv("LOCKSTEP_STORE_FD")) return 93;
  const int peer = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(number_in("MASTER_PORT")));
  ::inet_pton(AF_INET, std::getenv("MASTER_ADDR"), &address.sin_addr);
  if (::connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 94;
  char byte = 0;
  return ::read(peer, &byte, 1) == 0 ? 0 : 95;
}

[[noreturn]] void wait_forever() {
  for (;;) ::pause();
}

int stubborn() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  say("ready");
  wait_forever();
}

// Starts two processes that a careless launcher would miss, says their numbers, and waits: a child
// in the rank's process group without environment, and a daemon in a session of its own; both
// ignore what can be ignored. With exit_after, ends at once and leaves them.
int family(bool exit_after) {
  const auto start = [](bool own_session, bool no_environment) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
    if (own_session) ::setsid();
    char* none[] = {nullptr};
    ::execle("/bin/sleep", "sleep", "1000", nullptr, no_environment ? none : environ);
    ::_exit(96);
  };
  say(fmt::format("family {} {}.", start(false, true), start(true, false)));
  if (exit_after) return 0;
  say("ready");
  wait_forever();
}

// Takes memory until it is killed; gives up at 2 GiB.
int hog() {
  if (number_in("RANK") != 1) wait_forever();
  say("allocating");
  constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
  std::vector<std::unique_ptr<char[]>> blocks;
  while (blocks.size() < 128) {
    blocks.push_back(std::make_unique<char[]>(kBlockBytes));
    std::memset(blocks.back().get(), 1, kBlockBytes);
  }
  return 97;
}

int run(const std::string& mode) {
  if (mode == "chatter") return chatter();
  if (mode == "where") return where();
  if (mode == "meet") return meet();
  if (mode == "stubborn") return stubborn();
  if (mode == "family") return family(false);
  if (mode == "family-left") return family(true);
  if (mode == "hog") return hog();
  return 98;
}

}  // namespace
}  // namespace lockstep::launch_test

int main(int argc, char** argv) {
  return lockstep::launch_test::run(argc > 1 ? argv[1] : "");
}
