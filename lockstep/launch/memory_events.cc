#include "lockstep/launch/memory_events.h"

#include <fstream>
#include <string>

#include "lockstep/env/cgroup.h"

namespace lockstep {
namespace {

// The value of "oom_kill 3" in a file of such lines.
std::optional<std::int64_t> counter_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return {};
}

}  // namespace

std::optional<std::int64_t> out_of_memory_kills(const std::filesystem::path& root) {
  const CgroupFolders groups = cgroup_folders("memory", root);
  const char* name = groups.version == 2 ? "memory.events" : "memory.oom_control";
  // Version 2 counts a group's descendants too, so the own group's counter alone is exact there; in
  // version 1 a rank is counted in its own group, which it shares with the launcher.
  if (!groups.folders.empty()) {
    if (const auto value = counter_in(groups.folders.front() / name)) return value;
  }
  return counter_in(root / "proc/vmstat");
}

}  // namespace lockstep
