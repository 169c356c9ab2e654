// Conversions between half types and f32, written so that compilers vectorise loops over them.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::kernels {

inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  // Scaling by 2^112 moves the exponent from bias 15 to bias 127 and normalises subnormals.
  float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  if (magnitude >= 0x7c00u) {
    scaled = std::bit_cast<float>((magnitude << 13) | 0x7f800000u);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

inline std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Subnormal halves: adding 0.5 leaves the ten bits, rounded to nearest even, at the low end.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  if (magnitude >= 0x477ff000u) half = 0x7c00u;  // 65520 and above round to infinity
  if (magnitude > 0x7f800000u) half = 0x7e00u;
  return static_cast<std::uint16_t>(half | sign);
}

inline float bfloat_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lockstep::kernels
