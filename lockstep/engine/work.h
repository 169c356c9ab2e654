// Work: the handle of an operation under way.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {

namespace internal {
// One operation as its Work sees it. Thread rule: safe from any thread.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void wait() = 0;
  virtual bool done() = 0;
  virtual std::optional<Error> error() = 0;
};
}  // namespace internal

class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<internal::Completion> completion)
      : completion_(std::move(completion)) {}

  // Blocks until the operation is complete; throws its Error if it failed. If the engine is idle
  // the calling thread runs the operation itself. A default-constructed Work is complete.
  void wait() const {
    if (completion_) completion_->wait();
  }
  bool done() const { return !completion_ || completion_->done(); }
  // Why the operation failed; empty while it runs and when it succeeded.
  std::optional<Error> error() const {
    return completion_ ? completion_->error() : std::optional<Error>();
  }

 private:
  // Shared by the caller and the engine: whoever lets go last frees it.
  std::shared_ptr<internal::Completion> completion_;
};

}  // namespace lockstep
