#include "lockstep/env/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/slice.h"
#include "lockstep/base/text.h"
#include "lockstep/env/cgroup.h"

namespace lockstep {
namespace {

// The kernel refuses masks smaller than its own; this is more cores than any kernel is built for.
constexpr int kCoresMax = 1 << 16;

class CoreSet {
 public:
  CoreSet() { CPU_ZERO_S(bytes(), get()); }
  cpu_set_t* get() { return set_.get(); }
  std::size_t bytes() const { return CPU_ALLOC_SIZE(kCoresMax); }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set_{CPU_ALLOC(kCoresMax)};
};

std::optional<double> quota_of(const std::filesystem::path& folder, int version) {
  const auto word = [](std::istream& file) {
    std::string text;
    file >> text;
    return parse_integer(text, 1, std::int64_t{1} << 60);  // "max" and -1 mean no quota
  };
  std::optional<std::int64_t> quota_us, period_us;
  if (version == 2) {
    std::ifstream file(folder / "cpu.max");
    quota_us = word(file);
    period_us = word(file);
  } else {
    std::ifstream quota_file(folder / "cpu.cfs_quota_us");
    std::ifstream period_file(folder / "cpu.cfs_period_us");
    quota_us = word(quota_file);
    period_us = word(period_file);
  }
  if (!quota_us || !period_us) return {};
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

}  // namespace

std::vector<int> allowed_cores() {
  CoreSet set;
  if (::sched_getaffinity(0, set.bytes(), set.get()) != 0) {
    fail_errno(errno, "cannot read the cores this process may use");
  }
  std::vector<int> cores;
  for (int core = 0; core < kCoresMax; ++core) {
    if (CPU_ISSET_S(static_cast<std::size_t>(core), set.bytes(), set.get())) cores.push_back(core);
  }
  return cores;
}

std::optional<double> cgroup_core_quota(const std::filesystem::path& root) {
  const CgroupFolders groups = cgroup_folders("cpu", root);
  std::optional<double> smallest;
  for (const auto& folder : groups.folders) {
    const std::optional<double> quota = quota_of(folder, groups.version);
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
  }
  return smallest;
}

int usable_core_count() {
  const int cores = static_cast<int>(allowed_cores().size());
  const double quota = cgroup_core_quota().value_or(cores);
  return std::max(1, std::min(cores, static_cast<int>(std::min<double>(quota, cores))));
}

std::vector<int> cores_of_rank(std::span<const int> cores, int local_rank, int local_ranks) {
  const auto core_count = static_cast<std::int64_t>(cores.size());
  if (local_ranks > core_count) {
    return {cores[static_cast<std::size_t>(local_rank % core_count)]};
  }
  const Range share = slice_of({0, core_count}, local_ranks, local_rank);
  const auto part =
      cores.subspan(static_cast<std::size_t>(share.begin), static_cast<std::size_t>(share.count));
  return {part.begin(), part.end()};
}

int threads_per_rank(int usable_cores, int local_ranks) {
  return std::max(1, usable_cores / local_ranks);
}

std::size_t shared_cache_bytes(const std::filesystem::path& root) {
  constexpr std::size_t kUsualBytes = 32 << 20;
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(root / fmt::format("sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::string text;
    if (!(file >> text) || text.empty() || text.back() != 'K') continue;
    text.pop_back();
    const auto kib = parse_integer(text, 1, 1 << 30);
    if (kib) largest = std::max(largest, static_cast<std::size_t>(*kib) << 10);
  }
  return largest == 0 ? kUsualBytes : largest;
}

void pin_this_thread(std::span<const int> cores) {
  CoreSet set;
  for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), set.bytes(), set.get());
  if (::sched_setaffinity(0, set.bytes(), set.get()) != 0) {
    std::string list;
    for (const int core : cores) list += fmt::format(" {}", core);
    fail_errno(errno, fmt::format("cannot pin to cores{}", list));
  }
}

}  // namespace lockstep
