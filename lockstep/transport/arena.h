// The arena: memory that all ranks of one host map, and the barrier between them.
//
// Memory comes from memfd: it has no name in any file system and is gone with its last user,
// however that user ends. Peers open it through /proc/<pid>/fd, which the kernel allows to the same
// user. Layout of the control block: docs/architecture.md.
//
// A rank of the arena is its index among the ranks of the host.
//
// Thread rule: one thread at a time drives the barrier (the engine's driver); wake_all and listen
// from any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/env/fd.h"
#include "lockstep/transport/announcement.h"
#include "lockstep/transport/bulletin.h"
#include "lockstep/transport/ring.h"

namespace lockstep {

// Zeroed shared memory, mapped. Moves, does not copy.
class SharedMemory {
 public:
  // Where another process finds it.
  struct Address {
    pid_t pid = 0;
    int fd = -1;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;

    std::string to_wire() const;
    static Address from_wire(const std::string& bytes);  // throws Error(corrupt)
  };

  SharedMemory() = default;
  // Throws Error(io) saying how much was asked for. `populate` takes the page faults now.
  static SharedMemory create(std::size_t bytes, bool populate);
  // Throws Error(io) naming the process that could not be reached.
  static SharedMemory open(const Address& address, bool populate);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Address address() const;

 private:
  SharedMemory(Fd fd, std::size_t bytes, bool populate);

  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Arena {
 public:
  // Bytes of control block for that many ranks with twice that much scratch each.
  static std::size_t bytes_for(int ranks, std::size_t scratch_bytes);

  // `memory` is the same zeroed block on all ranks.
  Arena(SharedMemory memory, int rank, int ranks, std::size_t scratch_bytes);

  // Scratch takes turns: what is left in one may be read while the other is written.
  std::byte* scratch(int rank, unsigned turn) const;
  // The turn of the next operation that uses scratch.
  unsigned next_turn() { return ++turns_ % 2; }

  // What this rank is in. The last two are kept.
  void announce(const Announcement& operation);
  // What stands where `rank` announces that number: that operation, or one two (four …) further or
  // before. Empty while it is being written.
  std::optional<Announcement> announced(int rank, std::uint64_t sequence) const;

  // The barrier: arrive() starts the next one and returns its number; it is passed when laggard()
  // is -1, else that is a rank which has not arrived. A rank that comes with another fingerprint is
  // in another operation: agrees() says so when the barrier is passed, until the next but one.
  std::uint32_t arrive(std::uint64_t fingerprint);
  bool agrees(int rank, std::uint32_t barrier) const;
  std::uint32_t next_barrier() const { return barriers_ + 1; }
  // A few bytes that go along with a rank's arrival: written before it, read after the barrier and
  // before the next one. In the same cache line, so that whoever sees the arrival has them.
  static constexpr std::size_t kMailBytes = 40;
  std::byte* mail(int rank, std::uint32_t barrier) const;
  int laggard(std::uint32_t barrier) const;
  bool arrived(int rank, std::uint32_t barrier) const;
  // Waits until `rank` has arrived, wake_all() was called, or the time is over, whichever is first.
  // The first `spin` of it keeps the core busy, which is for a rank that has a core to itself:
  // going to sleep and being woken costs more than a peer is usually late. Without spin it lets
  // others run a few times before it sleeps.
  void wait_for(int rank, std::uint32_t barrier, std::chrono::milliseconds time,
                std::chrono::microseconds spin) const;
  void wake_all() const;

  // Bytes from `from` to `to`, of which this rank is one. All have made their arenas.
  Ring ring(int from, int to) const;
  // Wakes `rank` if it sleeps in listen(): there is something in a ring for it, or room.
  void ring_bell(int rank) const;
  // Sleeps until somebody rings this rank's bell, wake_all() was called, or the time is over.
  // `idle` says once more whether there is nothing, when nobody can overlook any more that it
  // sleeps.
  void listen(const std::function<bool()>& idle, std::chrono::milliseconds time) const;

 private:
  // A rank's arrival at a barrier.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> barrier;  // the last of its parity that this rank has arrived at
    mutable std::atomic<std::uint32_t> sleepers;  // ranks asleep on `barrier`
    std::atomic<std::uint64_t> fingerprint;
    std::uint64_t mail[kMailBytes / sizeof(std::uint64_t)];
  };
  // What one rank says to the others. Barriers take turns with two lines: a rank is one barrier
  // ahead of a peer at most.
  struct alignas(128) Slot {
    Line lines[2];
    Bulletin bulletins[2];              // this operation and the last
    std::atomic<std::uint32_t> fences;  // this rank cannot order the stores of others: they must
    std::atomic<std::uint32_t> bell;    // how often it was rung
    std::atomic<std::uint32_t> asleep;  // this rank sleeps until it is
  };
  // Where they begin in the memory: slots, scratch, rings.
  static std::size_t scratch_at(int ranks);
  static std::size_t rings_at(int ranks, std::size_t scratch_bytes);
  // Barrier numbers wrap; a difference does not.
  static bool reached(std::uint32_t counter, std::uint32_t barrier) {
    return static_cast<std::int32_t>(counter - barrier) >= 0;
  }
  Slot& slot(int rank) const { return slots_[rank]; }
  Line& line(int rank, std::uint32_t barrier) const { return slots_[rank].lines[barrier % 2]; }
  void wake_sleepers(Line& line) const;
  void share_fences();
  bool must_fence() const {
    if (!fenced_) fenced_ = some_rank_fences();
    return *fenced_;
  }
  bool some_rank_fences() const;
  void order_stores_of_others() const;

  const SharedMemory memory_;
  Slot* const slots_;
  const int rank_;
  const int ranks_;
  const std::size_t scratch_bytes_;
  std::uint32_t barriers_ = 0;
  unsigned turns_ = 0;
  mutable std::optional<bool> fenced_;
};

// What every operation does, on the way between two ranks.

inline void Arena::announce(const Announcement& operation) {
  slot(rank_).bulletins[operation.sequence % 2].write(operation);
}

inline std::byte* Arena::mail(int rank, std::uint32_t barrier) const {
  return reinterpret_cast<std::byte*>(line(rank, barrier).mail);
}

inline std::uint32_t Arena::arrive(std::uint64_t fingerprint) {
  ++barriers_;
  Line& own = line(rank_, barriers_);
  own.fingerprint.store(fingerprint, std::memory_order_relaxed);
  std::uint32_t sleepers = 0;
  if (must_fence()) {
    own.barrier.store(barriers_, std::memory_order_seq_cst);
    sleepers = own.sleepers.load(std::memory_order_seq_cst);
  } else {
    own.barrier.store(barriers_, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    sleepers = own.sleepers.load(std::memory_order_relaxed);
  }
  if (sleepers > 0) wake_sleepers(own);
  return barriers_;
}

inline bool Arena::agrees(int rank, std::uint32_t barrier) const {
  return line(rank, barrier).fingerprint.load(std::memory_order_relaxed) ==
         line(rank_, barrier).fingerprint.load(std::memory_order_relaxed);
}

inline int Arena::laggard(std::uint32_t barrier) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!arrived(rank, barrier)) return rank;
  }
  return -1;
}

inline bool Arena::arrived(int rank, std::uint32_t barrier) const {
  return reached(line(rank, barrier).barrier.load(std::memory_order_acquire), barrier);
}

}  // namespace lockstep
