#include "lockstep/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kThreadNames[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                             "MKL_NUM_THREADS"};

constexpr std::string_view kJobNames[] = {
    "RANK",        "WORLD_SIZE",      "LOCAL_RANK",        "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "LOCKSTEP_SECRET", "LOCKSTEP_STORE_FD", "LOCKSTEP_TERMINAL"};

std::string_view name_of(std::string_view setting) {
  return setting.substr(0, setting.find('='));
}

// Empty where unset or set to nothing.
std::string value_of(std::span<const std::string> environment, std::string_view name) {
  for (const std::string& setting : environment) {
    if (name_of(setting) == name && setting.size() > name.size()) {
      return setting.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

ThreadVariables thread_variables(std::span<const std::string> inherited, int threads) {
  const std::string by_user = value_of(inherited, "OMP_NUM_THREADS");
  // OMP_NUM_THREADS may be a list, one number per level of nesting; the others take one number.
  const std::string number =
      by_user.empty() ? fmt::to_string(threads) : by_user.substr(0, by_user.find(','));
  ThreadVariables result;
  for (const std::string_view name : kThreadNames) {
    if (value_of(inherited, name).empty()) {
      result.settings.push_back(fmt::format("{}={}", name, number));
    }
  }
  result.summary = !by_user.empty() ? fmt::format("OMP_NUM_THREADS={} as set", by_user)
                   : threads == 1   ? "1 thread each"
                                    : fmt::format("{} threads each", threads);
  return result;
}

std::vector<std::string> rank_environment(std::span<const std::string> inherited,
                                          const JobEnvironment& job, int rank, int store_fd) {
  std::vector<std::string> added = thread_variables(inherited, job.threads).settings;
  added.push_back(fmt::format("RANK={}", rank));
  added.push_back(fmt::format("WORLD_SIZE={}", job.ranks));
  added.push_back(fmt::format("LOCAL_RANK={}", rank));
  added.push_back(fmt::format("LOCAL_WORLD_SIZE={}", job.ranks));
  added.push_back("MASTER_ADDR=127.0.0.1");
  added.push_back(fmt::format("MASTER_PORT={}", job.port));
  added.push_back(job_mark(job.secret));
  if (job.encrypt) added.push_back("LOCKSTEP_ENCRYPT=1");
  if (store_fd >= 0) added.push_back(fmt::format("LOCKSTEP_STORE_FD={}", store_fd));
  if (rank == 0 && job.terminal) {
    added.push_back("LOCKSTEP_TERMINAL=1");
    if (job.columns > 0) added.push_back(fmt::format("COLUMNS={}", job.columns));
  }
  const auto replaced = [&](const std::string& setting) {
    const std::string_view name = name_of(setting);
    return std::ranges::find(kJobNames, name) != std::end(kJobNames) ||
           std::ranges::any_of(added, [&](const auto& other) { return name_of(other) == name; });
  };
  std::vector<std::string> result;
  std::ranges::remove_copy_if(inherited, std::back_inserter(result), replaced);
  result.insert(result.end(), added.begin(), added.end());
  return result;
}

std::string job_mark(const std::string& secret) {
  return "LOCKSTEP_SECRET=" + secret;
}

}  // namespace lockstep
