#include "lockstep/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

constexpr std::byte kSentinel{0xA5};

// Memory with sentinels on both sides, `shift` bytes off alignment.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t shift) : bytes_(bytes), shift_(shift), raw_(bytes + 192) {
    std::fill(raw_.begin(), raw_.end(), kSentinel);
  }
  std::byte* data() { return raw_.data() + 64 + shift_; }
  bool intact() const {
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      const bool inside = i >= 64 + shift_ && i < 64 + shift_ + bytes_;
      if (!inside && raw_[i] != kSentinel) return false;
    }
    return true;
  }

 private:
  std::size_t bytes_;
  std::size_t shift_;
  std::vector<std::byte> raw_;
};

template <class T>
T reference(Reduce op, const std::vector<T>& values) {
  T result = values[0];
  for (std::size_t s = 1; s < values.size(); ++s) {
    const T next = values[s];
    if (op == Reduce::sum || op == Reduce::mean) result = static_cast<T>(result + next);
    if (op == Reduce::product) result = static_cast<T>(result * next);
    if (op == Reduce::min) result = std::min(result, next);
    if (op == Reduce::max) result = std::max(result, next);
  }
  if (op == Reduce::mean) result = static_cast<T>(result / static_cast<T>(values.size()));
  return result;
}

template <class T>
void sweep(DType dtype, Reduce op) {
  std::mt19937 random(7);
  for (const std::int64_t count : {1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 5003, 9000}) {
    for (const int ranks : {1, 2, 3, 5}) {
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
      std::vector<Guarded> memory;
      for (int r = 0; r < ranks; ++r) {
        memory.emplace_back(bytes, sizeof(T) * static_cast<std::size_t>(r % 3));
        auto* values = reinterpret_cast<T*>(memory.back().data());
        for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(random() % 7) + T(1);
      }
      std::vector<T> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<T> column;
        for (Guarded& m : memory) column.push_back(reinterpret_cast<T*>(m.data())[i]);
        expected.push_back(reference(op, column));
      }
      std::vector<std::byte*> destinations;
      std::vector<const std::byte*> sources;
      for (Guarded& m : memory) {
        destinations.push_back(m.data());
        sources.push_back(m.data());
      }
      reduce(destinations, sources, count, dtype, op, ranks);
      for (Guarded& m : memory) {
        EXPECT_EQ(std::memcmp(m.data(), expected.data(), bytes), 0)
            << to_string(dtype) << ' ' << to_string(op) << ' ' << count << ' ' << ranks;
        EXPECT_TRUE(m.intact());
      }
    }
  }
}

TEST(Reduce, EveryTypeAndReductionMatchesAScalarLoop) {
  for (int o = 0; o < kReduceCount; ++o) {
    const auto op = static_cast<Reduce>(o);
    sweep<float>(DType::f32, op);
    sweep<double>(DType::f64, op);
    sweep<std::int64_t>(DType::i64, op);
    sweep<std::int32_t>(DType::i32, op);
    sweep<std::int8_t>(DType::i8, op);
    sweep<std::uint8_t>(DType::u8, op);
  }
}

TEST(Reduce, HalfTypesAccumulateWide) {
  // S-NUM-03: (a) no overflow, (b) nothing flushed to zero, (c) exact cancellation.
  const auto mean = [](std::vector<float> values) {
    std::vector<std::uint16_t> halves;
    for (const float v : values) halves.push_back(f32_to_f16(v));
    std::vector<const std::byte*> sources;
    for (const auto& h : halves) sources.push_back(reinterpret_cast<const std::byte*>(&h));
    std::uint16_t result = 0;
    std::byte* destination = reinterpret_cast<std::byte*>(&result);
    reduce({&destination, 1}, sources, 1, DType::f16, Reduce::mean,
           static_cast<int>(values.size()));
    return f16_to_f32(result);
  };
  EXPECT_EQ(mean({30000, 30000, 30000, 30000}), 30000.0f);
  EXPECT_EQ(mean({0x1p-24f, 0x1p-24f, 0x1p-24f, 0x1p-24f}), 0x1p-24f);
  EXPECT_EQ(mean({65504, -65504, 1, 1}), 0.5f);
}

TEST(Half, RoundTripsEveryValueAndRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = f16_to_f32(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(wide))));
    } else {
      EXPECT_EQ(f32_to_f16(wide), half);
    }
    const float bwide = bf16_to_f32(half);
    if (!std::isnan(bwide)) {
      EXPECT_EQ(f32_to_bf16(bwide), half);
    }
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);             // half way: to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);  // above half way: up
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
}

TEST(Reduce, NanWinsMinAndMaxWhoeverHoldsIt) {
  // S-NUM-16
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t count : {1, 3000}) {
    for (int holder = 0; holder < 4; ++holder) {
      std::vector<std::vector<float>> values;
      for (int r = 0; r < 4; ++r) {
        values.emplace_back(count, r == holder ? nan : static_cast<float>(r));
      }
      std::vector<const std::byte*> sources;
      for (auto& v : values) sources.push_back(reinterpret_cast<const std::byte*>(v.data()));
      for (const Reduce op : {Reduce::min, Reduce::max}) {
        std::vector<float> out(count);
        std::byte* destination = reinterpret_cast<std::byte*>(out.data());
        reduce({&destination, 1}, sources, count, DType::f32, op, 4);
        for (const float v : out) EXPECT_TRUE(std::isnan(v));
      }
    }
  }
}

TEST(CopyBytes, EverySizeAndAlignment) {
  std::vector<std::byte> source(100'000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31);
  for (const std::size_t bytes : {0ul, 1ul, 63ul, 64ul, 16383ul, 16384ul, 16401ul, 99'000ul}) {
    for (const std::size_t shift : {0ul, 1ul, 13ul}) {
      Guarded target(bytes, shift);
      copy_bytes(target.data(), source.data() + shift, bytes, true);
      EXPECT_EQ(std::memcmp(target.data(), source.data() + shift, bytes), 0);
      EXPECT_TRUE(target.intact());
    }
  }
}

}  // namespace
}  // namespace lockstep
