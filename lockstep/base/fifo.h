// Fifo: a queue that keeps its memory, so that who puts in and takes out in turn allocates nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

template <class T>
class Fifo {
 public:
  bool empty() const { return first_ == items_.size(); }
  std::size_t count() const { return items_.size() - first_; }
  T& front() { return items_[first_]; }
  const T& front() const { return items_[first_]; }

  void push(T item) {
    // Moving up is paid for by as many pops before.
    if (items_.size() == items_.capacity() && 2 * first_ >= items_.size()) close_up();
    items_.push_back(std::move(item));
  }
  void pop() {
    if (++first_ == items_.size()) close_up();
  }

 private:
  void close_up() {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }

  std::vector<T> items_;
  std::size_t first_ = 0;
};

}  // namespace lockstep
