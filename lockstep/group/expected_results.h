// For tests: values that every rank can tell, and what a reduction of them must be, to the bit.
//
// The reference is scalar and knows nothing of plans or kernels but the conversions of half types
// (kernels/reduce_test.cc proves those): values are added in the canonical order (plan/order.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep::test {

using Bytes = std::vector<std::byte>;

enum class Values {
  random,  // any bits of integers; fractions of all precisions, of both signs, in 0.25 … 4
  exact,   // whole numbers whose sums and products are exact in any order, in every type
};

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A float with `fraction_bits` of fraction, exponent bias `bias`.
inline std::uint64_t random_fraction(std::uint64_t noise, int fraction_bits, std::uint64_t bias) {
  const std::uint64_t fraction = (noise >> 8) & ((std::uint64_t{1} << fraction_bits) - 1);
  const std::uint64_t exponent = bias - 2 + ((noise >> 1) & 3);
  const int sign_at = fraction_bits == 52 ? 63 : fraction_bits == 23 ? 31 : 15;
  return (noise & 1) << sign_at | exponent << fraction_bits | fraction;
}

inline std::uint64_t random_bits(DType dtype, std::uint64_t noise) {
  switch (dtype) {
    case DType::boolean:
      return noise & 1;
    case DType::f16:
      return random_fraction(noise, 10, 15);
    case DType::bf16:
      return random_fraction(noise, 7, 127);
    case DType::f32:
      return random_fraction(noise, 23, 127);
    case DType::f64:
      return random_fraction(noise, 52, 1023);
    default:
      return noise;
  }
}

inline std::uint64_t bits_of(DType dtype, int value) {
  const auto number = static_cast<float>(value);
  switch (dtype) {
    case DType::boolean:
      return value > 0 ? 1 : 0;
    case DType::f16:
      return f32_to_f16(number);
    case DType::bf16:
      return f32_to_bf16(number);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(number);
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    default:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  }
}

// What rank `rank` holds at `index`.
inline std::uint64_t value_of(DType dtype, Reduce reduce, Values values, std::uint64_t seed,
                              int rank, std::int64_t index) {
  const std::uint64_t noise = mix(mix(seed * 1000 + static_cast<std::uint64_t>(rank) + 1) +
                                  static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15);
  if (values == Values::random) return random_bits(dtype, noise);
  if (reduce == Reduce::product) return bits_of(dtype, noise % 2 == 0 ? 1 : -1);
  return bits_of(dtype, static_cast<int>(noise % 7) - 3);
}

inline void fill(std::byte* data, DType dtype, Reduce reduce, Values values, std::uint64_t seed,
                 int rank, std::int64_t begin, std::int64_t count) {
  const std::size_t bytes = size_of(dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = value_of(dtype, reduce, values, seed, rank, begin + i);
    std::memcpy(data + static_cast<std::size_t>(i) * bytes, &bits, bytes);  // little-endian
  }
}

// Sum, product … of two values, as unsigned arithmetic where integers wrap.
template <class T>
T combine(Reduce reduce, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool either = reduce == Reduce::sum || reduce == Reduce::max || reduce == Reduce::bor;
    if (reduce == Reduce::bxor) return a != b;
    return either ? a || b : a && b;
  } else {
    if (reduce == Reduce::min) return b < a ? b : a;
    if (reduce == Reduce::max) return a < b ? b : a;
    if constexpr (std::is_integral_v<T>) {
      const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
      if (reduce == Reduce::product) return static_cast<T>(x * y);
      if (reduce == Reduce::band) return static_cast<T>(x & y);
      if (reduce == Reduce::bor) return static_cast<T>(x | y);
      if (reduce == Reduce::bxor) return static_cast<T>(x ^ y);
      return static_cast<T>(x + y);
    } else {
      return reduce == Reduce::product ? a * b : a + b;
    }
  }
}

// Of ranks [begin, end): first two halves, the left one of a power of two.
template <class T, class Load>
T canonical(int begin, int end, Reduce reduce, const Load& load) {
  if (end - begin == 1) return load(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  const T left = canonical<T>(begin, begin + half, reduce, load);
  return combine<T>(reduce, left, canonical<T>(begin + half, end, reduce, load));
}

template <class T>
T finished(Reduce reduce, T value, int ranks) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else {
    return reduce == Reduce::mean ? static_cast<T>(value / static_cast<T>(ranks)) : value;
  }
}

// Element `i` of every rank reduced. `Load(rank)` gives its value, `Store` takes the result.
template <class T, class Decode, class Encode>
void reduce_all(std::byte* out, std::span<const Bytes> inputs, DType dtype, Reduce reduce,
                const Decode& decode, const Encode& encode) {
  const std::size_t bytes = size_of(dtype);
  const auto ranks = static_cast<int>(inputs.size());
  for (std::size_t at = 0; at < inputs[0].size(); at += bytes) {
    const auto load = [&](int rank) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, inputs[static_cast<std::size_t>(rank)].data() + at, bytes);
      return decode(bits);
    };
    const std::uint64_t bits =
        encode(finished<T>(reduce, canonical<T>(0, ranks, reduce, load), ranks));
    std::memcpy(out + at, &bits, bytes);
  }
}

template <class T>
void reduce_integers(std::byte* out, std::span<const Bytes> inputs, DType dtype, Reduce reduce) {
  reduce_all<T>(
      out, inputs, dtype, reduce, [](std::uint64_t bits) { return static_cast<T>(bits); },
      [](T value) { return static_cast<std::uint64_t>(value); });
}

// The reduction of all ranks' inputs, of equal lengths.
inline Bytes reduced(std::span<const Bytes> inputs, DType dtype, Reduce reduce) {
  Bytes out(inputs[0].size());
  const auto u16 = [](std::uint64_t bits) { return static_cast<std::uint16_t>(bits); };
  switch (dtype) {
    case DType::boolean:
      reduce_integers<bool>(out.data(), inputs, dtype, reduce);
      break;
    case DType::u8:
      reduce_integers<std::uint8_t>(out.data(), inputs, dtype, reduce);
      break;
    case DType::i8:
      reduce_integers<std::int8_t>(out.data(), inputs, dtype, reduce);
      break;
    case DType::i32:
      reduce_integers<std::int32_t>(out.data(), inputs, dtype, reduce);
      break;
    case DType::i64:
      reduce_integers<std::int64_t>(out.data(), inputs, dtype, reduce);
      break;
    case DType::f16:
      reduce_all<float>(
          out.data(), inputs, dtype, reduce, [&](auto bits) { return f16_to_f32(u16(bits)); },
          [](float value) -> std::uint64_t { return f32_to_f16(value); });
      break;
    case DType::bf16:
      reduce_all<float>(
          out.data(), inputs, dtype, reduce, [&](auto bits) { return bf16_to_f32(u16(bits)); },
          [](float value) -> std::uint64_t { return f32_to_bf16(value); });
      break;
    case DType::f32:
      reduce_all<float>(
          out.data(), inputs, dtype, reduce,
          [](auto bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); },
          [](float value) -> std::uint64_t { return std::bit_cast<std::uint32_t>(value); });
      break;
    case DType::f64:
      reduce_all<double>(
          out.data(), inputs, dtype, reduce,
          [](auto bits) { return std::bit_cast<double>(std::uint64_t{bits}); },
          [](double value) { return std::bit_cast<std::uint64_t>(value); });
      break;
  }
  return out;
}

}  // namespace lockstep::test
