#include "lockstep/kernels/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/kernels/norm.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<float> samples() {
  std::vector<float> values = {0.0F,     -0.0F, 1.0F,     -2.5F, 65504.0F, 65519.0F,
                               65520.0F, 1e30F, 0x1p-24F, 3e-8F, 0x1p-126F};
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(static_cast<float>(i) * 1.7F) * 900);
  return values;
}

TEST(Convert, EveryPairOfTypesAsTheScalarConversions) {
  auto values = samples();
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> half(values.size()), brain(values.size());
  std::vector<double> wide(values.size());
  convert(bytes(half), DType::f16, bytes(values), DType::f32, count);
  convert(bytes(brain), DType::bf16, bytes(values), DType::f32, count);
  convert(bytes(wide), DType::f64, bytes(values), DType::f32, count);
  std::vector<float> from_half(values.size()), from_brain(values.size()), from_wide(values.size());
  convert(bytes(from_half), DType::f32, bytes(half), DType::f16, count);
  convert(bytes(from_brain), DType::f32, bytes(brain), DType::bf16, count);
  convert(bytes(from_wide), DType::f32, bytes(wide), DType::f64, count);
  std::vector<std::uint16_t> again(values.size());
  convert(bytes(again), DType::f16, bytes(wide), DType::f64, count);
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(half[i], f32_to_f16(values[i])) << values[i];
    EXPECT_EQ(brain[i], f32_to_bf16(values[i])) << values[i];
    EXPECT_TRUE(same(from_half[i], f16_to_f32(half[i]))) << values[i];
    EXPECT_TRUE(same(from_brain[i], bf16_to_f32(brain[i]))) << values[i];
    EXPECT_TRUE(same(from_wide[i], values[i])) << values[i];
    EXPECT_EQ(again[i], half[i]) << values[i];
  }
}

TEST(AllFinite, FindsOneBadElementAnywhereInAnyType) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const std::size_t at : {0u, 1u, 63u, 4095u, 4096u, 9998u}) {
      for (const float value : bad) {
        std::vector<float> values(9999, 3.0F);
        std::vector<double> memory(values.size());
        convert(bytes(memory), dtype, bytes(values), DType::f32, 9999);
        EXPECT_TRUE(all_finite(bytes(memory), dtype, 9999));
        values[at] = value;
        convert(bytes(memory), dtype, bytes(values), DType::f32, 9999);
        EXPECT_FALSE(all_finite(bytes(memory), dtype, 9999)) << to_string(dtype) << " " << at;
        EXPECT_TRUE(all_finite(bytes(memory), dtype, static_cast<std::int64_t>(at)));
      }
    }
  }
}

TEST(SumOfSquares, OfEveryTypeAndLength) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const std::int64_t count : {0, 1, 15, 16, 17, 1000}) {
      std::vector<float> values;
      double expected = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(i % 7) - 3);
        expected += values.back() * values.back();
      }
      std::vector<double> memory(values.size());
      convert(bytes(memory), dtype, bytes(values), DType::f32, count);
      EXPECT_EQ(sum_of_squares(bytes(memory), dtype, count), expected);
    }
  }
}

// Which source held what is not finite, also where the result is written over the sources.
TEST(Reduce, TellsWhichSourceWasNotFinite) {
  constexpr std::int64_t kCount = 3001;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const std::size_t sources : {1u, 2u, 3u, 4u, 7u}) {
      for (const std::int64_t at : {0, 1023, 1024, 3000}) {
        for (std::size_t bad = 0; bad <= sources; ++bad) {
          std::vector<std::vector<double>> memory(sources, std::vector<double>(kCount));
          std::vector<Source> inputs;
          std::vector<std::byte*> outputs;
          for (std::size_t s = 0; s < sources; ++s) {
            std::vector<float> values(kCount, 1.0F);
            if (s == bad) values[static_cast<std::size_t>(at)] = INFINITY;
            convert(bytes(memory[s]), dtype, bytes(values), DType::f32, kCount);
            inputs.push_back({bytes(memory[s])});
            outputs.push_back(bytes(memory[s]));
          }
          int found = -1;
          reduce(outputs, inputs, kCount, dtype, Reduce::mean, 3, Stores::through_cache, &found);
          EXPECT_EQ(found, bad == sources ? -1 : static_cast<int>(bad)) << to_string(dtype);
        }
      }
    }
  }
  // Finite values whose sum is not.
  std::vector<float> a(20, 3e38F), b(20, 3e38F);
  const Source both[] = {{bytes(a)}, {bytes(b)}};
  std::byte* to = bytes(a);
  int found = -1;
  reduce({&to, 1}, both, 20, DType::f32, Reduce::sum, 1, Stores::through_cache, &found);
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace lockstep
