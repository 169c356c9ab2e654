// Recorder: the last operations of one rank of one group, kept in memory and written to a file when
// the group fails, for `lockstep blame`. docs/flight-record.md: the file and where it goes.
//
// An operation that is not complete is never overwritten: with more of those than there is room
// for, the later ones are only counted.
//
// Thread rule: any thread. submitted(), started() and finished() allocate nothing and take a lock
// that is only ever held for a few stores: tens of nanoseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/flight_record.h"
#include "lockstep/env/ticks.h"
#include "lockstep/transport/announcement.h"

namespace lockstep {

struct RecordOptions {
  std::string folder;  // where the job's folder is made; empty: no file is ever written
  std::string job;     // the same for all ranks of a job, another for every job
  std::string group = "world";
};

class Recorder {
 public:
  static constexpr std::size_t kOperationsMax = 1000;
  // Names an operation to started() and finished().
  using Ticket = std::uint64_t;
  // An operation that is not complete, and the ranks it waits for.
  using Waiting = std::pair<Ticket, std::vector<int>>;

  Recorder(int rank, int ranks, RecordOptions options);

  // `algorithm` must outlive the recorder. `at_once`: it is started as well.
  Ticket submitted(const Announcement& operation, std::string_view algorithm, std::size_t bytes,
                   bool at_once = false);
  void started(Ticket ticket);
  void finished(Ticket ticket, bool well);

  FlightRecord record(const Error& cause, const std::vector<Waiting>& waiting) const;
  // The first call writes the file; later ones do nothing. A line for people, if there is something
  // to say: where the files are (from one rank of each host), or why there is none.
  std::optional<std::string> write(const Error& cause, const std::vector<Waiting>& waiting);
  bool written() const;

 private:
  enum class State : std::uint8_t { queued, under_way, complete, failed };
  struct Entry {
    Ticket ticket = 0;
    Announcement operation;
    std::string_view algorithm;
    std::size_t bytes = 0;
    State state = State::queued;
    std::int64_t submitted_ticks = 0;  // 0: not
    std::int64_t started_ticks = 0;
    std::int64_t finished_ticks = 0;
  };
  static std::string_view name_of(State state);
  static RecordedOperation recorded(const Entry& entry, const TickScale::Now& scale);
  Entry* find(Ticket ticket);
  std::string write_file(const FlightRecord& record) const;

  // Constant after construction.
  const int rank_;
  const int ranks_;
  const RecordOptions options_;
  const TickScale scale_;

  // Held for a few stores, or by the one that writes the file.
  class Lock {
   public:
    void lock() {
      while (held_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    void unlock() { held_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> held_{false};
  };
  mutable Lock mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_; by ticket modulo kOperationsMax
  Ticket next_ = 0;             // guarded by mutex_
  bool written_ = false;        // guarded by mutex_
};

}  // namespace lockstep
