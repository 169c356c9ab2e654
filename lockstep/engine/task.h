// Task: an operation from submit to completion, and the pool where finished ones wait to be used
// again.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

// Where finished tasks wait to be used again. Most of the time one is in turn: that one needs no
// lock.
struct Engine::Pool {
  std::unique_ptr<Task> take();
  void give(std::unique_ptr<Task> task);
  void close();

  std::atomic<Task*> spare{nullptr};
  std::mutex mutex;
  std::vector<std::unique_ptr<Task>> free;  // guarded by mutex
  std::atomic<bool> closed{false};
};

// An operation from submit to completion. Its own fields belong to the driver until done_ is set.
class Engine::Task final : public internal::Completion {
 public:
  explicit Task(Engine* engine)
      : engine_(engine), pool_(engine->pool_), execution_(engine->fabric_) {}

  void wait() override {
    engine_->wait_for(*this);
    if (error_) throw *error_;
  }
  bool done() override {
    if (!is_done()) engine_->poll();
    return is_done();
  }
  std::optional<Error> error() override { return is_done() ? error_ : std::nullopt; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  bool is_send() const { return request_.operation == Operation::send; }

 protected:
  void dispose() override {
    std::unique_ptr<Task> self(this);
    decision_ = {};
    request_ = {};
    const auto pool = pool_;
    pool->give(std::move(self));
  }

 private:
  friend class Engine;

  Engine* const engine_;  // outlives the operation: its destructor completes what is left
  const std::shared_ptr<Pool> pool_;
  Request request_;
  Decision decision_;
  Execution execution_;
  bool started_ = false;
  bool looked_at_ = false;  // since it was started
  std::optional<Deadline> deadline_;
  std::optional<Error> error_;
  std::atomic<bool> done_{false};
  Recorder::Ticket ticket_ = 0;
};

}  // namespace lockstep
