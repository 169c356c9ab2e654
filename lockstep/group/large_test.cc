// Counts above 2^31 elements, where a 32-bit number would have been too short. Skipped where memory
// is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "lockstep/group/group.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 5;
constexpr std::int64_t kNeedsGiB = 14;  // three tensors of each of two ranks, and the arena's

std::int64_t available_gib() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib >> 20;
  }
  return 0;
}

class LargeCounts : public ::testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    const std::int64_t available = available_gib();
    if (available < kNeedsGiB) GTEST_SKIP() << available << " GiB of memory are free";
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, LargeCounts, ::testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& of) { return of.param == Transport::tcp ? "tcp" : "shm"; });

// Bytes that repeat, but not after a power of two: no two places 2^31 or 2^32 apart are alike. Laid
// and compared by the piece, since there are many.
class Pattern {
 public:
  explicit Pattern(const std::function<int(int)>& value) : piece_(61 * 1024) {
    for (std::size_t i = 0; i < piece_.size(); ++i) {
      piece_[i] = static_cast<std::byte>(value(static_cast<int>(i % 61)));
    }
  }
  void lay(void* memory, std::int64_t count) const {
    each_piece(count, [&](std::int64_t at, std::size_t length) {
      std::memcpy(static_cast<std::byte*>(memory) + at, piece_.data(), length);
      return true;
    });
  }
  bool lies_in(const void* memory, std::int64_t count) const {
    return each_piece(count, [&](std::int64_t at, std::size_t length) {
      return std::memcmp(static_cast<const std::byte*>(memory) + at, piece_.data(), length) == 0;
    });
  }

 private:
  bool each_piece(std::int64_t count,
                  const std::function<bool(std::int64_t at, std::size_t length)>& body) const {
    const auto length = static_cast<std::int64_t>(piece_.size());
    for (std::int64_t at = 0; at < count; at += length) {
      if (!body(at, static_cast<std::size_t>(std::min(length, count - at)))) return false;
    }
    return true;
  }
  std::vector<std::byte> piece_;
};

const Pattern kOfRank[] = {Pattern([](int i) { return i; }), Pattern([](int i) { return i + 1; })};

TEST_P(LargeCounts, OfBytes) {
  const auto errors = run_ranks(
      2, GetParam(),
      [](Group& group) {
        std::vector<std::int8_t> values(kCount);
        const TensorView view(values.data(), kCount, DType::i8);
        kOfRank[group.rank()].lay(values.data(), kCount);
        group.all_reduce(view);
        EXPECT_TRUE(Pattern([](int i) { return 2 * i + 1; }).lies_in(values.data(), kCount));
        kOfRank[group.rank()].lay(values.data(), kCount);
        group.broadcast(view, 1);
        EXPECT_TRUE(kOfRank[1].lies_in(values.data(), kCount));
      },
      std::chrono::minutes(5));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(LargeCounts, OfBoolsInParts) {
  const auto errors = run_ranks(
      2, GetParam(),
      [](Group& group) {
        const std::int64_t counts[] = {kCount, 3};
        const std::int64_t own = counts[group.rank()];
        const Pattern sevens([](int i) { return i == 7; }), zeros([](int) { return 0; });
        std::vector<std::uint8_t> part(static_cast<std::size_t>(own)), all(kCount + 3);
        const TensorView part_view(part.data(), own, DType::boolean);
        const TensorView all_view(all.data(), kCount + 3, DType::boolean);
        sevens.lay(part.data(), own);
        part.back() = 1;
        group.all_gather(all_view, part_view, counts);
        EXPECT_TRUE(sevens.lies_in(all.data(), kCount - 1));
        EXPECT_EQ(all[kCount - 1], 1);
        EXPECT_EQ(all.back(), 1);
        zeros.lay(part.data(), own);
        group.reduce_scatter(part_view, all_view, Reduce::sum, counts);
        EXPECT_TRUE((group.rank() == 0 ? sevens : zeros).lies_in(part.data(), own - 1));
        EXPECT_EQ(part.back(), 1);
      },
      std::chrono::minutes(5));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// In the arena, whose parts are addressed by offsets.
TEST(LargeCount, OfSharedMemory) {
  if (available_gib() < kNeedsGiB) GTEST_SKIP() << available_gib() << " GiB of memory are free";
  const auto errors = run_ranks(
      2, Transport::shm,
      [](Group& group) {
        const auto block = group.allocate(kCount);
        kOfRank[group.rank()].lay(block->data(), kCount);
        group.all_reduce({block->data(), kCount, DType::i8}, Reduce::max);
        EXPECT_TRUE(kOfRank[1].lies_in(block->data(), kCount));
      },
      std::chrono::minutes(5));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace lockstep
