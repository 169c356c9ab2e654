// Where this process sits in its host's control groups, versions 1 and 2.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lockstep {

struct CgroupFolders {
  int version = 0;                             // 1 or 2; 0: the controller is not mounted
  std::vector<std::filesystem::path> folders;  // this process's group first, then its ancestors
};

// The groups that limit this process for `controller` ("cpu", "memory"). `root` is where proc and
// the mount points are looked up. What cannot be read counts as not mounted.
CgroupFolders cgroup_folders(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace lockstep
