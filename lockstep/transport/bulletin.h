// Bulletin: an announcement that others may read while it is written: its version is odd meanwhile,
// and another afterwards.
//
// Thread rule: one rank writes, any read.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "lockstep/transport/announcement.h"

namespace lockstep {

class alignas(64) Bulletin {
 public:
  void write(const Announcement& operation) {
    std::uint64_t words[kWords];
    std::memcpy(words, &operation, sizeof(operation));
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  std::optional<Announcement> read() const {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    std::uint64_t words[kWords];
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (before % 2 == 1 || before == 0 || version_.load(std::memory_order_acquire) != before)
      return std::nullopt;
    Announcement operation;
    std::memcpy(&operation, words, sizeof(operation));
    return operation;
  }

 private:
  static constexpr std::size_t kWords = sizeof(Announcement) / sizeof(std::uint64_t);
  static_assert(sizeof(Announcement) % sizeof(std::uint64_t) == 0);
  static_assert(std::is_trivially_copyable_v<Announcement>);

  std::atomic<std::uint64_t> words_[kWords];
  std::atomic<std::uint64_t> version_;  // 0: nothing written yet
};

}  // namespace lockstep
