#include "lockstep/transport/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/transport/channel.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& values) {
  return std::as_bytes(std::span(values));
}

TEST(Ring, KeepsTheOrderOverItsEndAndTellsWhenItIsFullOrEmpty) {
  alignas(64) std::byte memory[128 + 64] = {};
  ASSERT_EQ(Ring::bytes_for(64), sizeof(memory));
  Ring writer(memory, 64), reader(memory, 64);
  std::vector<std::uint8_t> out(50), in(50);
  EXPECT_TRUE(reader.is_empty());
  for (int round = 0; round < 10; ++round) {  // begins at 0, 50, 36 …
    std::iota(out.begin(), out.end(), static_cast<std::uint8_t>(round));
    EXPECT_EQ(writer.write(bytes_of(out), {}), 50u);
    EXPECT_EQ(writer.write(bytes_of(out), bytes_of(out)), 14u);  // what there is room for
    EXPECT_TRUE(writer.is_full());
    EXPECT_EQ(reader.read(std::as_writable_bytes(std::span(in)), {}), 50u);
    EXPECT_EQ(in, out);
    EXPECT_EQ(reader.read(std::as_writable_bytes(std::span(in)).first(10),
                          std::as_writable_bytes(std::span(in)).last(30)),
              14u);
    EXPECT_TRUE(reader.is_empty());
  }
}

// What a rank sends through channels of an arena, another gets, though both sleep now and then.
TEST(Channel, CarriesBytesOfAnyLengthsBetweenRanksThatSleep) {
  SharedMemory first = SharedMemory::create(Arena::bytes_for(3, 4096), false);
  SharedMemory second = SharedMemory::open(first.address(), false);
  const Arena of_1(std::move(first), 1, 3, 4096), of_2(std::move(second), 2, 3, 4096);
  constexpr std::size_t kBytes = 20'000'000;
  std::vector<std::uint8_t> sent(kBytes), received(kBytes);
  std::mt19937 values(1);
  for (auto& value : sent) value = static_cast<std::uint8_t>(values());
  std::thread writer([&] {
    Channel channel(&of_1, 1, 2);
    std::mt19937 random(2);
    for (std::size_t at = 0; at < kBytes;) {
      const std::size_t some = std::min<std::size_t>(kBytes - at, random() % 600'000);
      const auto piece = bytes_of(sent).subspan(at, some);
      at += channel.write(piece.first(some / 3), piece.subspan(some / 3));
      if (random() % 64 == 0) std::this_thread::sleep_for(milliseconds(3));
      while (!channel.can_write())
        of_1.listen([&] { return !channel.can_write(); }, milliseconds(2'000));
    }
  });
  Channel channel(&of_2, 2, 1);
  std::mt19937 random(3);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t at = 0; at < kBytes;) {
    while (!channel.can_read())
      of_2.listen([&] { return !channel.can_read(); }, milliseconds(2'000));
    const std::size_t some = std::min<std::size_t>(kBytes - at, 1 + random() % 600'000);
    const auto piece = std::as_writable_bytes(std::span(received)).subspan(at, some);
    at += channel.read(piece.first(some / 2), piece.subspan(some / 2));
    if (random() % 64 == 0) std::this_thread::sleep_for(milliseconds(3));
  }
  writer.join();
  EXPECT_TRUE(sent == received);
  // One lost bell would be two seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace lockstep
