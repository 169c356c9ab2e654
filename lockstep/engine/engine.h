// Engine: carries out the operations of one group in the order in which they were submitted, one at
// a time; only sends and receives between two ranks that follow one another go on side by side (a
// rank may send before its peer receives, and the other way round). An operation advances whenever
// somebody drives it: a caller in wait(), a caller in poll(), or the progress thread. At most one
// thread drives at a time.
//
// Failure is sticky: once an operation has failed, or break_with() was called, everything under way
// and everything later fails at once with the first cause.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/engine/execution.h"
#include "lockstep/engine/notices.h"
#include "lockstep/engine/planner.h"
#include "lockstep/engine/recorder.h"
#include "lockstep/engine/stall.h"
#include "lockstep/engine/work.h"
#include "lockstep/env/fd.h"

namespace lockstep {

struct EngineOptions {
  // How long one operation may take from the moment it is driven.
  std::chrono::milliseconds operation_timeout{300'000};
  // When the progress thread drives an operation that nobody else does. Zero: at once (there are
  // cores to spare, or bytes cross a network); else it waits so long, because it would only take
  // the core from the thread that computes and will poll.
  std::chrono::milliseconds takeover{0};
  // How long a caller that waits keeps its core busy before it sleeps. Zero where ranks share
  // cores.
  std::chrono::microseconds spin{0};
  PlannerOptions planner;
  // After so long without a move of the operation under way, who waits for whom is logged.
  std::chrono::milliseconds stall_after{10'000};
  // Whether and where the last operations are written when the group fails.
  RecordOptions record;
  // Called once, with the first cause, when an operation fails here (not by break_with).
  std::function<void(const Error&)> on_failure;
};

class Engine {
 public:
  Engine(const Fabric& fabric, EngineOptions options);
  // Fails what is under way with Error(cancelled).
  ~Engine();

  // The operation joins the queue. Throws the sticky Error. Arguments were checked by the caller.
  Work submit(const Request& request);
  // submit and wait, without waking the progress thread.
  void run(const Request& request);

  bool poll();
  // Everything under way and everything later fails with `error`, unless a first cause stands
  // already.
  void break_with(const Error& error);
  // The first cause, once broken.
  std::optional<Error> failure() const;
  // `rank` will not take part any more; operations that need it fail.
  void peer_left(int rank, const std::string& how);
  // The progress thread calls `on_readable` when `fd` is readable, until it returns false.
  void watch(int fd, std::function<bool()> on_readable);

  // EngineOptions::takeover, from now on.
  void set_takeover(std::chrono::milliseconds takeover) {
    takeover_ms_ = static_cast<int>(takeover.count());
  }
  std::chrono::milliseconds takeover() const {
    return std::chrono::milliseconds(takeover_ms_.load());
  }

  void add_region(const SharedRegion* region);
  void remove_region(const SharedRegion* region);

  std::int64_t bytes_reduced() const { return bytes_reduced_.load(std::memory_order_relaxed); }

 private:
  class Task;

  struct Pool;

  void prepare(Task& task, const Request& request);
  void record(Task& task);
  Work enqueue(const Request& request);
  std::uint64_t number_of(const Request& request);
  void wait_for(Task& task);
  // These need drive_mutex_.
  void drive();
  void run_alone(const Request& request);
  bool advance(Task& task);
  void complete(Task& task);
  void fail_task(Task& task);
  void start(Task& task);
  void check_departed(Task& task);
  // Puts the operations that may go on now into driven_.
  void look_at_queue();
  // Sleeps until something may have moved. Whether an arena or links are waited for decides how.
  void block();
  bool at_barrier_only() const;
  int patience_ms() const;
  void finish_all();
  void write_record();
  void watch_for_stall(const Execution& execution);
  void finish(Task* task, std::optional<Error> error);

  void fail_here(const Error& error);
  // A link that breaks is often only how this rank learns that another has failed for a reason that
  // is on its way here as well: waits a moment for that one.
  void await_cause();
  bool set_failure(const Error& error);
  Task* front() const;

  void progress_loop();
  // Drives if it is the progress thread's turn; how long poll(2) may sleep then.
  int progress(std::vector<pollfd>& fds);
  void wake() const;

  // Constant after construction.
  const Fabric fabric_;
  const EngineOptions options_;
  const std::shared_ptr<Pool> pool_;  // handles may outlive the engine, and the pool serves them
  const Fd wake_fd_;
  const Fd abort_fd_;  // readable from the first failure on, so that no poll(2) sleeps through it

  // Whoever holds drive_mutex_ drives, and owns these.
  std::mutex drive_mutex_;
  std::vector<std::byte> workspace_;
  std::vector<Task*> driven_;
  std::unique_ptr<Task> alone_;  // of run_alone()
  std::uint64_t moves_ = 0;      // of driven_, when they were last seen to move, and then
  std::int64_t moved_us_ = 0;
  std::vector<pollfd> poll_fds_;
  StallWatch stall_;
  StallWatch quiet_;  // the same, after less

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::vector<Task*> queue_;
  std::optional<Error> failure_;
  std::map<int, std::string> left_;
  std::map<int, std::function<bool()>> watched_;
  std::uint64_t watched_changes_ = 0;
  Planner planner_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_to_;        // by rank: sends so far
  std::vector<std::uint64_t> received_from_;  // by rank

  // Any thread.
  Recorder recorder_;
  Notices notices_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> someone_left_{false};
  std::atomic<std::size_t> pending_{0};
  std::atomic<int> callers_driving_{0};
  std::atomic<bool> sleeping_{false};  // the progress thread sleeps until it is woken
  std::atomic<bool> stop_{false};
  std::atomic<std::thread::id> progress_id_{};
  std::atomic<int> takeover_ms_;
  std::atomic<std::int64_t> last_driven_us_{0};
  std::atomic<std::int64_t> last_submit_us_{0};
  std::atomic<std::int64_t> bytes_reduced_{0};

  std::thread progress_;
};

}  // namespace lockstep
