#include "lockstep/engine/recorder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/engine/execution.h"
#include "lockstep/env/files.h"
#include "lockstep/env/ticks.h"

namespace lockstep {

namespace {

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

// True when this call made it. The folder may be in /tmp, where others could have made it before.
bool make_own_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) == 0) return true;
  const int cause = errno;
  struct stat status {};
  const bool there = cause == EEXIST && ::lstat(folder.c_str(), &status) == 0;
  if (!there) fail_errno(cause, fmt::format("cannot make folder '{}'", folder.string()));
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    fail(Code::io, "'{}' is no folder of this user", folder.string());
  }
  return false;
}

}  // namespace

Recorder::Recorder(int rank, int ranks, RecordOptions options)
    : rank_(rank), ranks_(ranks), options_(std::move(options)) {
  entries_.reserve(kOperationsMax);
}

Recorder::Ticket Recorder::submitted(const Announcement& operation, std::string_view algorithm,
                                     std::size_t bytes, bool at_once) {
  const std::int64_t now = ticks_now();
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_++;
  const std::size_t place = ticket % kOperationsMax;
  if (place >= entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[place];
  const bool done = entry.state == State::complete || entry.state == State::failed;
  if (entry.submitted_ticks != 0 && !done) return ticket;
  entry = {ticket, operation,         algorithm, bytes, at_once ? State::under_way : State::queued,
           now,    at_once ? now : 0, 0};
  return ticket;
}

Recorder::Entry* Recorder::find(Ticket ticket) {
  const std::size_t place = ticket % kOperationsMax;
  if (place >= entries_.size() || entries_[place].ticket != ticket) return nullptr;
  return &entries_[place];
}

void Recorder::started(Ticket ticket) {
  const std::int64_t now = ticks_now();
  const std::lock_guard lock(mutex_);
  Entry* entry = find(ticket);
  if (entry == nullptr) return;
  entry->started_ticks = now;
  entry->state = State::under_way;
}

void Recorder::finished(Ticket ticket, bool well) {
  const std::int64_t now = ticks_now();
  const std::lock_guard lock(mutex_);
  Entry* entry = find(ticket);
  if (entry == nullptr) return;
  entry->finished_ticks = now;
  entry->state = well ? State::complete : State::failed;
}

std::string_view Recorder::name_of(State state) {
  switch (state) {
    case State::queued:
      return kQueued;
    case State::under_way:
      return kUnderWay;
    case State::complete:
      return kComplete;
    case State::failed:
      return kFailed;
  }
  return "unknown";
}

RecordedOperation Recorder::recorded(const Entry& entry, const TickScale::Now& scale) {
  const auto unix_us = [&](std::int64_t ticks) { return ticks == 0 ? 0 : scale.unix_us(ticks); };
  RecordedOperation operation;
  operation.number = entry.operation.sequence;
  operation.operation = to_string(static_cast<Operation>(entry.operation.operation));
  operation.what = describe(entry.operation);
  operation.algorithm = entry.algorithm;
  operation.dtype = to_string(entry.operation.dtype);
  operation.reduce = to_string(entry.operation.reduce);
  operation.root = entry.operation.root;
  operation.count = entry.operation.count;
  operation.bytes = static_cast<std::int64_t>(entry.bytes);
  operation.state = name_of(entry.state);
  operation.submitted_us = unix_us(entry.submitted_ticks);
  operation.started_us = unix_us(entry.started_ticks);
  operation.finished_us = unix_us(entry.finished_ticks);
  return operation;
}

FlightRecord Recorder::record(const Error& cause, const std::vector<Waiting>& waiting) const {
  FlightRecord record;
  record.job = options_.job;
  record.group = options_.group;
  record.rank = rank_;
  record.ranks = ranks_;
  record.host = host_name();
  record.process = ::getpid();
  const TickScale::Now now = scale_.now();
  record.written_us = now.unix_us(ticks_now());
  record.error_code = to_string(cause.code());
  record.error = cause.what();
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
    record.submitted = next_;
  }
  std::ranges::sort(entries, {}, &Entry::ticket);
  for (const Entry& entry : entries) {
    record.operations.push_back(recorded(entry, now));
    for (const auto& [ticket, ranks] : waiting) {
      if (ticket == entry.ticket) record.operations.back().waits_for = ranks;
    }
  }
  return record;
}

bool Recorder::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

std::optional<std::string> Recorder::write(const Error& cause,
                                           const std::vector<Waiting>& waiting) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(written_, true)) return std::nullopt;
  }
  if (options_.folder.empty()) return std::nullopt;
  try {
    const std::string line = write_file(record(cause, waiting));
    if (line.empty()) return std::nullopt;
    return line;
  } catch (const std::exception& error) {  // the failure itself is what must reach the caller
    return fmt::format("no flight record was written: {} (LOCKSTEP_RECORD)", error.what());
  }
}

std::string Recorder::write_file(const FlightRecord& record) const {
  const std::filesystem::path folder =
      std::filesystem::path(options_.folder) / ("lockstep-" + options_.job);
  const bool made = make_own_folder(folder);
  const std::string group = options_.group == "world" ? "" : "." + options_.group;
  write_file_atomically(folder / fmt::format("rank-{}{}.record", rank_, group), to_text(record));
  if (!made) return "";
  return fmt::format(
      "the last operations of the ranks on {0} are in {1}; `lockstep blame {1}` says which rank "
      "diverged or stopped first",
      record.host, folder.string());
}

}  // namespace lockstep
