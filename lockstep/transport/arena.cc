#include "lockstep/transport/arena.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::size_t kPageBytes = 4096;
// How often a rank that shares its core lets others run before it sleeps.
constexpr int kYields = 30;
// Beyond what is asked for. Mappings lie side by side, and a rank reads the same place in several
// of them at once. AMD's first-level cache predicts its way from address bits 12 to 27, folded in
// pairs: where two addresses fold alike, as at a distance of 256 MiB, every access misses. Three
// pages keep all powers of two apart, by that distance and by each pair of bits.
constexpr std::size_t kApartBytes = 3 * kPageBytes;

std::size_t round_up(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Of each pair. Memory is there once it is used; what many ranks could use at most must not be too
// much.
std::size_t ring_bytes(int ranks) {
  constexpr std::size_t kBytesMin = 8 << 10, kBytesMax = 256 << 10, kAllBytesMax = 4 << 20;
  return std::clamp(std::bit_floor(kAllBytesMax / static_cast<std::size_t>(ranks)), kBytesMin,
                    kBytesMax);
}

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, 0);
}

// Until it is woken, the time is over, or `word` is not `seen` any more.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen,
              std::chrono::milliseconds time) {
  const timespec timeout{time.count() / 1000, time.count() % 1000 * 1'000'000};
  futex(&word, FUTEX_WAIT, seen, &timeout);
}

void wake_all_on(std::atomic<std::uint32_t>& word) {
  futex(&word, FUTEX_WAKE, INT32_MAX, nullptr);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// For a microsecond or so; whether it came true.
template <class Condition>
bool spins_until(const Condition& condition) {
  for (int i = 0; i < 64; ++i) {
    if (condition()) return true;
    relax();
  }
  return false;
}

}  // namespace

std::string SharedMemory::Address::to_wire() const {
  WireWriter writer;
  writer.put(static_cast<std::int32_t>(pid));
  writer.put(static_cast<std::int32_t>(fd));
  writer.put(inode);
  writer.put(bytes);
  return writer.bytes();
}

SharedMemory::Address SharedMemory::Address::from_wire(const std::string& bytes) {
  WireReader reader(bytes);
  Address address;
  address.pid = reader.get<std::int32_t>();
  address.fd = reader.get<std::int32_t>();
  address.inode = reader.get<std::uint64_t>();
  address.bytes = reader.get<std::uint64_t>();
  if (reader.left() != 0 || address.pid <= 0 || address.fd < 0 || address.bytes == 0) {
    fail(Code::corrupt, "a rank says where its shared memory is, but that is no place");
  }
  return address;
}

SharedMemory::SharedMemory(Fd fd, std::size_t bytes, bool populate)
    : fd_(std::move(fd)), bytes_(bytes) {
  const int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd_.get(), 0);
  if (mapped == MAP_FAILED) {
    fail_errno(errno, fmt::format("cannot map {} of shared memory",
                                  human_bytes(static_cast<double>(bytes))));
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory SharedMemory::create(std::size_t bytes, bool populate) {
  bytes = round_up(bytes) + kApartBytes;
  Fd fd(::memfd_create("lockstep", MFD_CLOEXEC));
  if (!fd.valid()) fail_errno(errno, "cannot make shared memory (memfd_create)");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail_errno(errno, fmt::format("cannot make {} of shared memory",
                                  human_bytes(static_cast<double>(bytes))));
  }
  return SharedMemory(std::move(fd), bytes, populate);
}

SharedMemory SharedMemory::open(const Address& address, bool populate) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    fail_errno(errno,
               fmt::format("cannot open the shared memory of process {} ({})", address.pid, path));
  }
  if (status.st_ino != address.inode ||
      static_cast<std::uint64_t>(status.st_size) != address.bytes) {
    fail(Code::io, "{} is not the shared memory that process {} announced", path, address.pid);
  }
  return SharedMemory(std::move(fd), address.bytes, populate);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedMemory::Address SharedMemory::address() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) fail_errno(errno, "cannot look at own shared memory");
  return {::getpid(), fd_.get(), status.st_ino, bytes_};
}

std::size_t Arena::bytes_for(int ranks, std::size_t scratch_bytes) {
  const auto count = static_cast<std::size_t>(ranks);
  return rings_at(ranks, scratch_bytes) + count * count * Ring::bytes_for(ring_bytes(ranks));
}

std::size_t Arena::scratch_at(int ranks) {
  return round_up(static_cast<std::size_t>(ranks) * sizeof(Slot));
}

std::size_t Arena::rings_at(int ranks, std::size_t scratch_bytes) {
  return scratch_at(ranks) + round_up(2 * static_cast<std::size_t>(ranks) * scratch_bytes);
}

Arena::Arena(SharedMemory memory, int rank, int ranks, std::size_t scratch_bytes)
    : memory_(std::move(memory)),
      slots_(reinterpret_cast<Slot*>(memory_.data())),
      rank_(rank),
      ranks_(ranks),
      scratch_bytes_(scratch_bytes) {
  LOCKSTEP_CHECK(memory_.bytes() >= bytes_for(ranks, scratch_bytes));
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  static_assert(sizeof(Line) == 64);
  share_fences();
}

std::byte* Arena::scratch(int rank, unsigned turn) const {
  return memory_.data() + scratch_at(ranks_) +
         (2 * static_cast<std::size_t>(rank) + turn) * scratch_bytes_;
}

std::optional<Announcement> Arena::announced(int rank, std::uint64_t sequence) const {
  return slot(rank).bulletins[sequence % 2].read();
}

// Who arrives must see who sleeps, or the sleeper the arrival. The sleeper pays for that, with a
// barrier on all cores, so that arriving needs no fence. Where the kernel has no such thing, it
// does.
void Arena::share_fences() {
#if defined(__SANITIZE_THREAD__)
  slot(rank_).fences = 1;
#else
  const bool ordered =
      ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
      ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  slot(rank_).fences = ordered ? 0 : 1;
#endif
}

// All have made their arenas when this is asked.
bool Arena::some_rank_fences() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (slot(rank).fences.load() != 0) return true;
  }
  return false;
}

void Arena::wake_sleepers(Line& line) const {
  wake_all_on(line.barrier);
}

void Arena::wait_for(int rank, std::uint32_t barrier, std::chrono::milliseconds time,
                     std::chrono::microseconds spin) const {
  Line& other = line(rank, barrier);
  const auto is_there = [&] {
    return reached(other.barrier.load(std::memory_order_acquire), barrier);
  };
  if (spin.count() > 0) {
    if (spins_until(is_there)) return;
    const auto end = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < end) {
      if (spins_until(is_there)) return;
    }
  } else {
    // The one that is waited for may want this very core.
    for (int i = 0; i < kYields; ++i) {
      ::sched_yield();
      if (is_there()) return;
    }
  }
  other.sleepers.fetch_add(1, std::memory_order_seq_cst);
  order_stores_of_others();
  const std::uint32_t seen = other.barrier.load(std::memory_order_seq_cst);
  if (!reached(seen, barrier)) sleep_on(other.barrier, seen, time);
  other.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

Ring Arena::ring(int from, int to) const {
  must_fence();  // known before several threads ask
  const auto ranks = static_cast<std::size_t>(ranks_);
  const std::size_t index = static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to);
  const std::size_t capacity = ring_bytes(ranks_);
  return {memory_.data() + rings_at(ranks_, scratch_bytes_) + index * Ring::bytes_for(capacity),
          capacity};
}

void Arena::ring_bell(int rank) const {
  Slot& other = slot(rank);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // Changed by nothing, it is in order with the sleeper's change.
  const std::uint32_t asleep = must_fence() ? other.asleep.fetch_add(0, std::memory_order_seq_cst)
                                            : other.asleep.load(std::memory_order_relaxed);
  if (asleep == 0) return;
  other.bell.fetch_add(1, std::memory_order_seq_cst);
  wake_all_on(other.bell);
}

void Arena::listen(const std::function<bool()>& idle, std::chrono::milliseconds time) const {
  Slot& own = slot(rank_);
  const std::uint32_t seen = own.bell.load(std::memory_order_seq_cst);
  for (int i = 0; i < kYields; ++i) {
    ::sched_yield();
    if (!idle()) return;
  }
  own.asleep.fetch_add(1, std::memory_order_seq_cst);
  order_stores_of_others();
  if (idle()) sleep_on(own.bell, seen, time);
  own.asleep.fetch_sub(1, std::memory_order_seq_cst);
}

void Arena::order_stores_of_others() const {
  if (!must_fence()) ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void Arena::wake_all() const {
  slot(rank_).bell.fetch_add(1);
  wake_all_on(slot(rank_).bell);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (Line& line : slot(rank).lines) wake_sleepers(line);
  }
}

}  // namespace lockstep
