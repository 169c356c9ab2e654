#include "lockstep/group/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace lockstep {

namespace {

std::string namespace_of(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? fmt::to_string(status.st_ino) : "?";
}

}  // namespace

std::string host_key() {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}/{}/{}/{}", boot, namespace_of("/proc/self/ns/net"),
                     namespace_of("/proc/self/ns/pid"), ::geteuid());
}

std::string who_am_i() {
  char host[256] = "?";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on host {}", ::getpid(), host);
}

}  // namespace lockstep
