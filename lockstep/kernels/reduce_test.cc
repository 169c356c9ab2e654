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
    if constexpr (std::is_integral_v<T>) {
      if (op == Reduce::band) result = static_cast<T>(result & next);
      if (op == Reduce::bor) result = static_cast<T>(result | next);
      if (op == Reduce::bxor) result = static_cast<T>(result ^ next);
    }
  }
  if (op == Reduce::mean) result = static_cast<T>(result / static_cast<T>(values.size()));
  return result;
}

template <class T>
void sweep(DType dtype, Reduce op) {
  if (!is_defined(op, dtype)) return;
  std::mt19937 random(7);
  const unsigned range = op == Reduce::product ? 2 : 7;  // exact in every type, in any order
  for (const std::int64_t count : {1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 5003, 9000}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 11, 17}) {
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
      std::vector<Guarded> memory;
      for (int r = 0; r < ranks; ++r) {
        memory.emplace_back(bytes, sizeof(T) * static_cast<std::size_t>(r % 3));
        auto* values = reinterpret_cast<T*>(memory.back().data());
        for (std::int64_t i = 0; i < count; ++i)
          values[i] = static_cast<T>(random() % range) + T(1);
      }
      std::vector<T> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<T> column;
        for (Guarded& m : memory) column.push_back(reinterpret_cast<T*>(m.data())[i]);
        expected.push_back(reference(op, column));
      }
      std::vector<std::byte*> destinations;
      std::vector<Source> sources;
      for (Guarded& m : memory) {
        destinations.push_back(m.data());
        sources.push_back({m.data()});
      }
      reduce(destinations, sources, count, dtype, op, ranks,
             count % 2 == 0 ? Stores::through_cache : Stores::past_cache);
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

TEST(Reduce, BoolHasOrAndXor) {
  const bool a[] = {false, false, true, true};
  const bool b[] = {false, true, false, true};
  const auto result = [&](Reduce op) {
    std::string text;
    bool out[4];
    auto* destination = reinterpret_cast<std::byte*>(out);
    const std::vector<Source> sources = {{reinterpret_cast<const std::byte*>(a)},
                                         {reinterpret_cast<const std::byte*>(b)}};
    reduce({&destination, 1}, sources, 4, DType::boolean, op, 2);
    for (const bool value : out) text += value ? '1' : '0';
    return text;
  };
  EXPECT_EQ(result(Reduce::sum), "0111");
  EXPECT_EQ(result(Reduce::bor), "0111");
  EXPECT_EQ(result(Reduce::max), "0111");
  EXPECT_EQ(result(Reduce::product), "0001");
  EXPECT_EQ(result(Reduce::band), "0001");
  EXPECT_EQ(result(Reduce::min), "0001");
  EXPECT_EQ(result(Reduce::bxor), "0110");
}

// The sum of ranks [begin, end) as the canonical order defines it, by recursion.
float tree(const std::vector<float>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return values[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree(values, begin, begin + half) + tree(values, begin + half, end);
}

TEST(Reduce, AddsInCanonicalOrder) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int ranks = 1; ranks <= 40; ++ranks) {
    std::vector<float> values;
    for (int r = 0; r < ranks; ++r) values.push_back(normal(random) * std::exp(normal(random) * 4));
    std::vector<Source> sources;
    for (const float& value : values)
      sources.push_back({reinterpret_cast<const std::byte*>(&value)});
    float sum = 0;
    auto* destination = reinterpret_cast<std::byte*>(&sum);
    reduce({&destination, 1}, sources, 1, DType::f32, Reduce::sum, ranks);
    EXPECT_EQ(sum, tree(values, 0, values.size())) << ranks;
  }
}

// Wherever blocks of ranks are added up first, the bits are the same.
template <class T, class Acc>
void partials_give_the_same_bits(DType dtype, T (*make)(float)) {
  constexpr std::int64_t kCount = 1500;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const int ranks : {3, 4, 6, 8, 13}) {
    std::vector<std::vector<T>> values(static_cast<std::size_t>(ranks));
    std::vector<Source> all;
    for (auto& of_rank : values) {
      for (std::int64_t i = 0; i < kCount; ++i) of_rank.push_back(make(normal(random)));
      all.push_back({reinterpret_cast<const std::byte*>(of_rank.data())});
    }
    std::vector<T> at_once(kCount), in_parts(kCount);
    auto* destination = reinterpret_cast<std::byte*>(at_once.data());
    reduce({&destination, 1}, all, kCount, dtype, Reduce::mean, ranks);
    std::vector<std::vector<Acc>> sums;
    std::vector<Source> mixed = {all[0], all[1]};  // values, then sums of two
    for (std::size_t r = 2; r + 1 < all.size(); r += 2) {
      sums.emplace_back(kCount);
      reduce_partial(reinterpret_cast<std::byte*>(sums.back().data()), {&all[r], 2}, kCount, dtype,
                     Reduce::mean);
      mixed.push_back({reinterpret_cast<const std::byte*>(sums.back().data()), true, 1});
    }
    if (all.size() % 2 == 1) mixed.push_back(all.back());
    destination = reinterpret_cast<std::byte*>(in_parts.data());
    reduce({&destination, 1}, mixed, kCount, dtype, Reduce::mean, ranks);
    EXPECT_EQ(std::memcmp(at_once.data(), in_parts.data(), kCount * sizeof(T)), 0) << ranks;
  }
}

TEST(Reduce, PartialSumsGiveTheSameBits) {
  partials_give_the_same_bits<float, float>(DType::f32, [](float v) { return v; });
  partials_give_the_same_bits<double, double>(DType::f64, [](float v) { return double{v}; });
  partials_give_the_same_bits<std::uint16_t, float>(DType::f16, f32_to_f16);
  partials_give_the_same_bits<std::uint16_t, float>(DType::bf16, f32_to_bf16);
}

// S-NUM-08
TEST(Reduce, HalfTypesOfEveryLengthAndAlignment) {
  std::mt19937 random(1024);
  std::uniform_real_distribution<float> uniform(-65504, 65504);
  std::vector<std::int64_t> counts = {4095, 240'633};
  for (std::int64_t count = 1; count <= 67; ++count) counts.push_back(count);
  for (const std::int64_t count : counts) {
    for (const std::size_t shift : {0ul, 2ul}) {
      Guarded a(static_cast<std::size_t>(count) * 2, shift),
          b(static_cast<std::size_t>(count) * 2, shift);
      auto* left = reinterpret_cast<std::uint16_t*>(a.data());
      auto* right = reinterpret_cast<std::uint16_t*>(b.data());
      std::vector<std::uint16_t> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        left[i] = f32_to_f16(uniform(random));
        right[i] = f32_to_f16(uniform(random));
        expected.push_back(f32_to_f16(f16_to_f32(left[i]) + f16_to_f32(right[i])));
      }
      const std::vector<std::byte*> destinations = {a.data(), b.data()};
      const std::vector<Source> sources = {{a.data()}, {b.data()}};
      reduce(destinations, sources, count, DType::f16, Reduce::sum, 2);
      for (Guarded* result : {&a, &b}) {
        EXPECT_EQ(std::memcmp(result->data(), expected.data(), expected.size() * 2), 0) << count;
        EXPECT_TRUE(result->intact());
      }
    }
  }
}

TEST(Reduce, HalfTypesAccumulateWide) {
  // S-NUM-03: (a) no overflow, (b) nothing flushed to zero, (c) exact cancellation.
  const auto mean = [](std::vector<float> values) {
    std::vector<std::uint16_t> halves;
    for (const float v : values) halves.push_back(f32_to_f16(v));
    std::vector<Source> sources;
    for (const auto& h : halves) sources.push_back({reinterpret_cast<const std::byte*>(&h)});
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
      std::vector<Source> sources;
      for (auto& v : values) sources.push_back({reinterpret_cast<const std::byte*>(v.data())});
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
      copy_bytes(target.data(), source.data() + shift, bytes,
                 shift == 1 ? Stores::through_cache : Stores::past_cache);
      EXPECT_EQ(std::memcmp(target.data(), source.data() + shift, bytes), 0);
      EXPECT_TRUE(target.intact());
    }
  }
}

}  // namespace
}  // namespace lockstep
