// The processor cores this process may use, and how ranks share them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Cores in this process's affinity mask, ascending.
std::vector<int> allowed_cores();

// How many cores' worth of time this process may use: the affinity mask, further limited by the
// quota of its cgroup (v1 or v2, any ancestor) rounded down, at least 1.
int usable_core_count();

// The CPU time that control groups allow this process, in cores: the smallest quota of its own
// group and all ancestors. Empty: no quota. `root` is where proc and the mount points are looked
// up.
std::optional<double> cgroup_core_quota(const std::filesystem::path& root = "/");

// The cores of local rank `local_rank` of `local_ranks`: an equal share of `cores`, neighbours
// together; when there are more ranks than cores, ranks share cores in turn.
std::vector<int> cores_of_rank(std::span<const int> cores, int local_rank, int local_ranks);

// Threads a rank may use for computing: max(1, usable cores / local ranks).
int threads_per_rank(int usable_cores, int local_ranks);

// Bytes of the largest cache of the first core, which neighbours share; 32 MiB where the system
// does not say.
std::size_t shared_cache_bytes(const std::filesystem::path& root = "/");

// Restricts the calling thread (and those it starts) to `cores`. Throws Error(io).
void pin_this_thread(std::span<const int> cores);

}  // namespace lockstep
