#include "lockstep/train/command.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "lockstep/env/cpu.h"
#include "lockstep/env/files.h"
#include "lockstep/group/group.h"
#include "lockstep/train/agree.h"
#include "lockstep/train/batches.h"
#include "lockstep/train/config.h"
#include "lockstep/train/process.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/report.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

namespace {

constexpr int kUsage = 2;
constexpr int kFailure = 1;

// Whether standard error ends at a terminal, through whoever started this rank.
bool ends_at_terminal() {
  const char* text = std::getenv("LOCKSTEP_TERMINAL");
  return text != nullptr && std::string_view(text) == "1";
}

int threads_of(const TrainSettings& settings, const Settings& job, const Group& group) {
  if (settings.threads > 0) return static_cast<int>(settings.threads);
  if (job.compute_threads > 0) return job.compute_threads;
  return threads_per_rank(usable_core_count(), group.local_size());
}

void tell(std::string_view who, std::string_view message) {
  // One line and one write, whatever an exception holds.
  std::string line =
      fmt::format("lockstep train: {}{}", who, message.substr(0, message.find('\n')));
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

void train(const TrainSettings& settings, Group& group, Progress* progress) {
  std::unique_ptr<BatchSource> data;
  agree(group, [&] {
    if (group.rank() == 0 && !settings.output.empty()) require_writable_folder(settings.output);
    if (group.rank() == 0 && !settings.report.empty()) {
      require_writable_folder(folder_of(settings.report));
    }
    if (group.rank() == 0 && !settings.trace.empty()) {
      require_writable_folder(folder_of(settings.trace));
    }
    data = open_data(settings);
  });
  const Report report = Trainer(settings, group, *data, progress).run();
  agree(group, [&] {
    if (group.rank() != 0 || settings.report.empty()) return;
    write_file_atomically(settings.report, to_json(report));
  });
}

// A launcher ends the job when the first rank ends: rank 0 must have spoken by then.
void end_together(Group& group) {
  try {
    group.barrier();
  } catch (const Error&) {
    // Another rank is gone already, and so is the job.
  }
}

void end_together(Settings job) {
  constexpr std::chrono::seconds kPatience{5};
  if (job.world_size == 1) return;
  job.join_timeout = job.operation_timeout = kPatience;
  try {
    Group group(job);
    end_together(group);
  } catch (const Error&) {
    // Whoever did not come is not waiting for anybody.
  }
}

int train_as_rank(const TrainSettings& settings, const Settings& job) {
  const std::string who = fmt::format("rank {}: ", job.rank);
  try {
    Group group(job);
    use_threads(threads_of(settings, job, group));
    keep_freed_memory();
    auto progress = Progress::to_standard_streams(ends_at_terminal());
    try {
      train(settings, group, job.rank == 0 ? &progress : nullptr);
      return 0;
    } catch (const AgreedError& error) {
      if (job.rank == 0) tell("", error.what());
      end_together(group);
    }
  } catch (const c10::Error& error) {
    tell(who, error.what_without_backtrace());
  } catch (const std::exception& error) {
    tell(who, error.what());
  }
  return kFailure;
}

}  // namespace

int run_command(std::span<const std::string> arguments) {
  Settings job;
  Command command;
  bool speaks = true;
  try {
    job = Settings::from_environment();
    // All ranks read the same arguments and would say the same.
    speaks = job.rank == 0;
    command = parse_command(arguments, job.world_size);
  } catch (const std::exception& error) {
    if (speaks) tell("", error.what());
    end_together(job);
    return kUsage;
  }
  if (command.action == Command::Action::print) {
    if (speaks) std::fputs(command.text.c_str(), stdout);
    return 0;
  }
  return train_as_rank(command.settings, job);
}

}  // namespace lockstep::train
