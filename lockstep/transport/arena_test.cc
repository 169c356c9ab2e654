#include "lockstep/transport/arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kScratchBytes = 4096;

std::vector<std::unique_ptr<Arena>> make_arenas(int ranks) {
  SharedMemory first = SharedMemory::create(Arena::bytes_for(ranks, kScratchBytes), false);
  const auto address = first.address();
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int rank = 0; rank < ranks; ++rank) {
    SharedMemory memory = rank == 0 ? std::move(first) : SharedMemory::open(address, false);
    arenas.push_back(std::make_unique<Arena>(std::move(memory), rank, ranks, kScratchBytes));
  }
  return arenas;
}

void pass(Arena& arena, std::chrono::microseconds spin) {
  const std::uint32_t barrier = arena.arrive(0);
  for (int late = arena.laggard(barrier); late >= 0; late = arena.laggard(barrier)) {
    arena.wait_for(late, barrier, std::chrono::milliseconds(1000), spin);
  }
}

TEST(SharedMemory, IsSeenByAnotherProcessAndIsZeroed) {
  SharedMemory memory = SharedMemory::create(10'000, true);
  EXPECT_EQ(memory.data()[9'999], std::byte{0});
  const std::string address = memory.address().to_wire();
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedMemory other = SharedMemory::open(SharedMemory::Address::from_wire(address), false);
    other.data()[7] = std::byte{42};
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.data()[7], std::byte{42});
}

TEST(SharedMemory, RefusesWhatIsNotTheAnnouncedMemory) {
  const SharedMemory memory = SharedMemory::create(4096, false);
  auto address = memory.address();
  address.inode += 1;
  EXPECT_THROW(SharedMemory::open(address, false), Error);
  address = memory.address();
  address.fd = 4000;
  EXPECT_THROW(SharedMemory::open(address, false), Error);
}

TEST(Arena, BarrierOrdersWritesOfAllRanks) {
  for (const std::chrono::microseconds spin : {0us, 30us}) {
    constexpr int kRanks = 4;
    constexpr int kRounds = 2000;
    auto arenas = make_arenas(kRanks);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Arena& arena = *arenas[rank];
        for (int round = 0; round < kRounds; ++round) {
          *reinterpret_cast<int*>(arena.scratch(rank, 0)) = round;
          pass(arena, spin);
          for (int peer = 0; peer < kRanks; ++peer) {
            if (*reinterpret_cast<int*>(arena.scratch(peer, 0)) != round) ++wrong;
          }
          pass(arena, spin);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Arena, LaggardIsNamedAndAnnouncementsOfTwoOperationsStandSideBySide) {
  auto arenas = make_arenas(2);
  Announcement first;
  first.sequence = 6;
  first.count = 10;
  Announcement second = first;
  second.sequence = 7;
  second.count = 20;
  arenas[0]->announce(first);
  arenas[0]->announce(second);
  EXPECT_EQ(arenas[1]->announced(0, 6), first);
  EXPECT_EQ(arenas[1]->announced(0, 7), second);
  const std::uint32_t barrier = arenas[0]->arrive(0);
  EXPECT_EQ(arenas[0]->laggard(barrier), 1);
  arenas[0]->wait_for(1, barrier, 5ms, 0us);  // comes back without rank 1
  EXPECT_EQ(arenas[0]->laggard(barrier), 1);
  arenas[1]->arrive(0);
  EXPECT_EQ(arenas[0]->laggard(barrier), -1);
}

}  // namespace
}  // namespace lockstep
