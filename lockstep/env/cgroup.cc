#include "lockstep/env/cgroup.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool has_item(const std::string& comma_list, std::string_view item) {
  std::istringstream items(comma_list);
  for (std::string each; std::getline(items, each, ',');) {
    if (each == item) return true;
  }
  return false;
}

// A line of /proc/self/cgroup: "4:memory:/path" (version 1) or "0::/path" (version 2).
std::optional<std::string> group_path(std::string_view controller, int version,
                                      const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool match = version == 2 ? controllers.empty() : has_item(controllers, controller);
    if (match) return line.substr(second + 1);
  }
  return {};
}

struct Mount {
  std::string subtree;  // which part of the hierarchy is mounted
  std::string point;
};

// A line of /proc/self/mountinfo:
// "36 35 98:0 /subtree /mount/point options [tags] - type source super_options".
std::optional<Mount> find_mount(std::string_view controller, int version, const fs::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped, type, super_options;
    Mount mount;
    fields >> skipped >> skipped >> skipped >> mount.subtree >> mount.point;
    while (fields >> skipped && skipped != "-") {
    }
    fields >> type >> skipped >> super_options;
    const bool match =
        version == 2 ? type == "cgroup2" : type == "cgroup" && has_item(super_options, controller);
    if (match) return mount;
  }
  return {};
}

}  // namespace

CgroupFolders cgroup_folders(std::string_view controller, const fs::path& root) {
  for (const int version : {1, 2}) {
    std::optional<std::string> path = group_path(controller, version, root);
    const std::optional<Mount> mount = find_mount(controller, version, root);
    if (!path || !mount) continue;
    // In a container the mounted subtree is often this very group, under its name on the host.
    if (mount->subtree != "/" && path->starts_with(mount->subtree)) {
      path->erase(0, mount->subtree.size());
    }
    const fs::path top = root / fs::path(mount->point).relative_path();
    fs::path below = fs::path(*path).lexically_normal().relative_path();
    CgroupFolders found{version, {}};
    for (; !below.empty() && *below.begin() != ".."; below = below.parent_path()) {
      found.folders.push_back(top / below);
    }
    found.folders.push_back(top);
    return found;
  }
  return {};
}

}  // namespace lockstep
