// Ring: a stream of bytes from one rank of a host to another through memory that both map, without
// system calls.
//
// Thread rule: one thread writes, one reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep {

class Ring {
 public:
  static std::size_t bytes_for(std::size_t capacity) { return sizeof(Ends) + capacity; }

  // `memory`: zeroed at first, 64-byte aligned, bytes_for(capacity) of it. `capacity` is a power of
  // two.
  Ring(std::byte* memory, std::size_t capacity)
      : ends_(reinterpret_cast<Ends*>(memory)),
        bytes_(memory + sizeof(Ends)),
        capacity_(capacity) {}

  // Bytes moved; `first` comes before `second`. Less than all when the ring is full or empty.
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second) {
    std::size_t done = write(first);
    if (done == first.size()) done += write(second);
    return done;
  }
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second) {
    std::size_t done = read(first);
    if (done == first.size()) done += read(second);
    return done;
  }

  bool is_empty() const { return held() == 0; }
  bool is_full() const { return held() == capacity_; }

 private:
  // The other end goes on with a piece while this one is at the next.
  static constexpr std::size_t kPieceBytes = 16 << 10;

  // Counts of all bytes ever. Each is written at one end, so each has a cache line.
  struct Ends {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
  };

  std::size_t held() const {
    return ends_->written.load(std::memory_order_acquire) -
           ends_->read.load(std::memory_order_acquire);
  }
  // How many bytes lie one behind the other from there on.
  std::size_t straight(std::uint64_t at) const { return capacity_ - at % capacity_; }

  std::size_t write(std::span<const std::byte> bytes) {
    std::size_t done = 0;
    std::uint64_t at = ends_->written.load(std::memory_order_relaxed);
    while (done < bytes.size()) {
      const std::size_t free = capacity_ - (at - ends_->read.load(std::memory_order_acquire));
      const std::size_t length = std::min({bytes.size() - done, free, straight(at), kPieceBytes});
      if (length == 0) break;
      std::memcpy(bytes_ + at % capacity_, bytes.data() + done, length);
      done += length;
      at += length;
      ends_->written.store(at, std::memory_order_release);
    }
    return done;
  }
  std::size_t read(std::span<std::byte> bytes) {
    std::size_t done = 0;
    std::uint64_t at = ends_->read.load(std::memory_order_relaxed);
    while (done < bytes.size()) {
      const std::size_t held = ends_->written.load(std::memory_order_acquire) - at;
      const std::size_t length = std::min({bytes.size() - done, held, straight(at), kPieceBytes});
      if (length == 0) break;
      std::memcpy(bytes.data() + done, bytes_ + at % capacity_, length);
      done += length;
      at += length;
      ends_->read.store(at, std::memory_order_release);
    }
    return done;
  }

  Ends* ends_;
  std::byte* bytes_;
  std::size_t capacity_;
};

}  // namespace lockstep
