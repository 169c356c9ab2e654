// Work: the handle of an operation under way.
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

// What a reduction of fractions has seen of infinities and NaN, on this rank: other ranks have
// reduced other parts. Ranks first … first + count - 1 have contributed one (count 1: known
// exactly); count 0: no rank alone, their sum is too large. Written until the Work is done.
struct NotFinite {
  int first = -1;  // nothing was seen
  int count = 0;
};

namespace internal {
// One operation as its Work sees it. Counts who holds it, so that the engine can use it again.
// Thread rule: safe from any thread.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void wait() = 0;
  virtual bool done() = 0;
  virtual std::optional<Error> error() = 0;

  void retain() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) dispose();
  }

 protected:
  // Nobody holds it any more.
  virtual void dispose() = 0;

 private:
  std::atomic<int> holders_{0};
};
}  // namespace internal

class Work {
 public:
  Work() = default;
  explicit Work(internal::Completion* completion) : completion_(completion) {
    if (completion_ != nullptr) completion_->retain();
  }
  Work(const Work& other) : Work(other.completion_) {}
  Work(Work&& other) noexcept : completion_(std::exchange(other.completion_, nullptr)) {}
  Work& operator=(Work other) noexcept {
    std::swap(completion_, other.completion_);
    return *this;
  }
  ~Work() {
    if (completion_ != nullptr) completion_->release();
  }

  // Blocks until the operation is complete; throws its Error if it failed. If the engine is idle
  // the calling thread runs the operation itself. A default-constructed Work is complete.
  void wait() const {
    if (completion_ != nullptr) completion_->wait();
  }
  bool done() const { return completion_ == nullptr || completion_->done(); }
  // Why the operation failed; empty while it runs and when it succeeded.
  std::optional<Error> error() const {
    return completion_ != nullptr ? completion_->error() : std::optional<Error>();
  }

 private:
  internal::Completion* completion_ = nullptr;
};

}  // namespace lockstep
