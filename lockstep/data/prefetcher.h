// Items 0, 1, 2 … in this order, loaded ahead by threads of its own.
//
// Thread rule: one thread calls next(). `load` runs on all workers at once, and on the calling
// thread when there are none. Bounds: at most `ahead` items are loaded or being loaded and not yet
// given. next() waits as long as the load of its item takes, the destructor until the loads under
// way are done: a load cannot be interrupted.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

struct PrefetcherOptions {
  std::int64_t item_count = 0;
  int workers = 0;         // 0: next() loads
  std::int64_t ahead = 1;  // at least 1; without workers it has no meaning
};

template <class Item>
class Prefetcher {
 public:
  using Load = std::function<Item(std::int64_t index)>;

  // `begin_worker` runs first on each worker; it must not throw. Throws std::system_error when no
  // thread can be made.
  Prefetcher(const PrefetcherOptions& options, Load load, std::function<void()> begin_worker = {})
      : item_count_(options.item_count),
        load_(std::move(load)),
        begin_worker_(std::move(begin_worker)),
        end_(options.item_count) {
    LOCKSTEP_CHECK(options.workers >= 0 && options.ahead >= 1);
    if (options.workers == 0) return;
    slots_.resize(static_cast<std::size_t>(options.ahead));
    try {
      for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next of the item_count items. Throws what its load threw, whichever load failed first in
  // time; called again it stays at that item, and what failed on a worker fails again.
  Item next() {
    LOCKSTEP_CHECK(given_ < item_count_);
    if (workers_.empty()) {
      Item item = load_(given_);
      ++given_;
      return item;
    }
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(given_);
    loaded_.wait(lock, [&] { return slot.item || slot.error; });
    if (slot.error) std::rethrow_exception(slot.error);
    Item item = std::move(*slot.item);
    slot.item.reset();
    ++given_;
    lock.unlock();
    wanted_.notify_one();
    return item;
  }

 private:
  // Both empty: not loaded yet.
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  Slot& slot_of(std::int64_t index) {
    return slots_[static_cast<std::size_t>(index) % slots_.size()];
  }

  void work() {
    if (begin_worker_) begin_worker_();
    const auto ahead = static_cast<std::int64_t>(slots_.size());
    std::unique_lock lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [&] { return stopping_ || begun_ >= end_ || begun_ < given_ + ahead; });
      if (stopping_ || begun_ >= end_) return;
      const std::int64_t index = begun_++;
      lock.unlock();
      Slot slot = loaded(index);
      lock.lock();
      if (slot.error) {
        // What was begun before this item will still be given; nothing after it will.
        end_ = begun_;
        wanted_.notify_all();
      }
      slot_of(index) = std::move(slot);
      loaded_.notify_one();
    }
  }

  Slot loaded(std::int64_t index) {
    Slot slot;
    try {
      slot.item.emplace(load_(index));
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wanted_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // Constant after construction.
  const std::int64_t item_count_;
  const Load load_;
  const std::function<void()> begin_worker_;
  std::vector<std::thread> workers_;

  std::mutex mutex_;
  std::condition_variable wanted_;  // there is something to load, or nothing more will be
  std::condition_variable loaded_;  // an item is there
  // Guarded by mutex_, but for given_ without workers.
  std::vector<Slot> slots_;  // item i in slot i modulo their number; the number is constant
  std::int64_t begun_ = 0;   // items whose load was begun
  std::int64_t given_ = 0;   // items that next() has given
  std::int64_t end_;         // where to stop
  bool stopping_ = false;
};

}  // namespace lockstep
