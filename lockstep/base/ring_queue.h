// A first-in first-out queue that keeps its memory: once it has held as many elements as it ever
// will, it allocates nothing.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

template <class T>
class RingQueue {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }

  T& front() {
    LOCKSTEP_CHECK(count_ > 0);
    return places_[first_];
  }
  const T& front() const { return const_cast<RingQueue*>(this)->front(); }

  void push_back(T element) {
    if (count_ == places_.size()) grow();
    places_[(first_ + count_) % places_.size()] = std::move(element);
    ++count_;
  }
  void pop_front() {
    front() = T();
    first_ = (first_ + 1) % places_.size();
    --count_;
  }

 private:
  void grow() {
    constexpr std::size_t kPlacesMin = 8;
    std::vector<T> larger(places_.empty() ? kPlacesMin : 2 * places_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(places_[(first_ + i) % places_.size()]);
    }
    places_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> places_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace lockstep
