#include "lockstep/launch/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kBacklog = 4096;  // every rank may connect before rank 0 has accepted one

// Socket inodes that listen on `port`, from a table of /proc/net.
void add_listening_inodes(const char* table, std::uint16_t port, std::vector<std::string>& inodes) {
  const std::string wanted_port = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string skipped, local, state, inode;
    fields >> skipped >> local >> skipped >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> inode;
    if (state == "0A" && local.ends_with(wanted_port)) inodes.push_back(inode);
  }
}

bool holds_socket(const fs::path& process, const std::vector<std::string>& inodes) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end;
       fd.increment(error)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(fd->path(), unreadable).string();
    for (const std::string& inode : inodes) {
      if (target == "socket:[" + inode + "]") return true;
    }
  }
  return false;
}

// " by pid 12 (python3)" for whoever listens on `port`; empty where that cannot be seen.
std::string holder_of(std::uint16_t port) {
  std::vector<std::string> inodes;
  add_listening_inodes("/proc/net/tcp", port, inodes);
  add_listening_inodes("/proc/net/tcp6", port, inodes);
  if (inodes.empty()) return {};
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string pid = process->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_socket(process->path(), inodes)) continue;
    std::string name;
    std::getline(std::ifstream(process->path() / "comm"), name);
    return fmt::format(" by pid {} ({})", pid, name);
  }
  return {};
}

}  // namespace

Listener listen_on_loopback(std::uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) fail_errno(errno, "cannot make a socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t address_bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, sizeof(address)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE && port != 0) {
      fail(Code::io,
           "127.0.0.1:{} is in use{}; choose another --port, or leave it out for a free one", port,
           holder_of(port));
    }
    fail_errno(error, fmt::format("cannot listen on 127.0.0.1:{}", port));
  }
  ::getsockname(socket.get(), generic, &address_bytes);
  return {std::move(socket), ntohs(address.sin_port)};
}

}  // namespace lockstep
