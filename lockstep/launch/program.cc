#include "lockstep/launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace lockstep {
namespace {

// 0, or the errno that executing `path` would give.
int why_not_executable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR;
}

Program refused(const std::string& path, int error) {
  return {{},
          fmt::format("cannot run {}: {}", path, std::strerror(error)),
          is_absent(error) ? 127 : 126};
}

}  // namespace

Program find_program(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) {
    const int error = why_not_executable(name);
    return error == 0 ? Program{name, {}, 0} : refused(name, error);
  }
  Program found{{}, fmt::format("cannot run '{}': not found in PATH", name), 127};
  if (name.empty()) return found;
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? std::string(".") : folder) + "/" + name;
    const int error = why_not_executable(path);
    if (error == 0) return {path, {}, 0};
    if (!is_absent(error)) found = refused(path, error);
  }
  if (found.exit_status == 127 && ::access(name.c_str(), F_OK) == 0) {
    found.problem += fmt::format("; for the file in this folder say ./{}", name);
  }
  return found;
}

}  // namespace lockstep
