// Handles: numbers that stand for objects across the C interface, where a pointer that was freed
// could not be told from one that was not.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace lockstep {

// Numbers for the handles of all kinds, so that one of another kind is found out, too.
class HandleNumbers {
 public:
  std::uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  // Not the small numbers that variables happen to hold which were never set to a handle.
  std::atomic<std::uint64_t> next_{std::uint64_t{1} << 32};
};

// Copies of `Object` share what they stand for (a shared_ptr, a Work): who has found one may use it
// whatever becomes of its number.
template <class Object>
class Handles {
 public:
  explicit Handles(HandleNumbers& numbers) : numbers_(numbers) {}

  std::uint64_t add(Object object) {
    const std::uint64_t handle = numbers_.next();
    const std::unique_lock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::optional<Object> find(std::uint64_t handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? std::nullopt : std::optional<Object>(found->second);
  }
  // The object outlives the lock: its end may take long and call back.
  std::optional<Object> remove(std::uint64_t handle) {
    const std::unique_lock lock(mutex_);
    auto node = objects_.extract(handle);
    return node.empty() ? std::nullopt : std::optional<Object>(std::move(node.mapped()));
  }

 private:
  HandleNumbers& numbers_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, Object> objects_;  // guarded by mutex_
};

}  // namespace lockstep
