// `lockstep train` becomes the program lockstep-train beside this one. That one links LibTorch,
// whose shared libraries take longer to load than `lockstep run` takes for all it does.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/commands.h"

namespace lockstep::cli {

int train_command(int, char** argv) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (own.parent_path() / "lockstep-train").string();
  ::execv(program.c_str(), argv);
  const bool absent = errno == ENOENT;
  fmt::print(stderr, "lockstep train: cannot start {}: {}{}\n", program, std::strerror(errno),
             absent ? "; this installation was built without LibTorch" : "");
  return absent ? 127 : 126;
}

}  // namespace lockstep::cli
