// Arithmetic on raw memory: the only place where element types become numbers.
//
// Thread rule: pure functions. The instruction set is chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/types.h"

namespace lockstep {

// Stores that bypass the cache pay for what would not stay in it until it is read.
enum class Stores : std::uint8_t { through_cache, past_cache };

// A contribution: a value of the type that is reduced, or an unfinished sum (`partial`) of its
// accumulation type. `level`: it stands for an aligned block of 2^level ranks.
struct Source {
  const std::byte* data = nullptr;
  bool partial = false;
  std::uint8_t level = 0;
};

// For every element i: value = the sources' elements merged, then every destination[i] = value.
//  - Sources are merged from left to right like a binary counter: neighbours of one level first,
//  the
//    rest from the right (plan/order.h). Four values: (a ∘ b) ∘ (c ∘ d).
//  - mean divides the sum by `mean_of`, once, after the last addition; integers truncate, and sums
//    of integers wrap in their own type.
//  - f16 and bf16 are accumulated in f32 and rounded once, to nearest even.
//  - min and max: NaN wins, whoever holds it. bool: sum and bor are or, product and band are and.
// The reduction must be defined for the type (is_defined). A destination may be one of the sources
// (then exactly, not shifted). The first destination is written through the cache, `others` says
// how the others are; all is fenced before return.
//  - `not_finite`, unless null: of sums and means of fractions, becomes the index of a source that
//    held an infinity or NaN, or the number of sources where only a sum is not finite; else it is
//    left as it is. The first source that is found stays.
void reduce(std::span<std::byte* const> destinations, std::span<const Source> sources,
            std::int64_t count, DType dtype, Reduce op, std::int64_t mean_of,
            Stores others = Stores::through_cache, int* not_finite = nullptr);

// The same, not finished: the sum as it is, in the accumulation type.
void reduce_partial(std::byte* destination, std::span<const Source> sources, std::int64_t count,
                    DType dtype, Reduce op);

// Fenced before return.
void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes,
                Stores stores = Stores::through_cache);

// IEEE conversions, round to nearest even.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);
float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);

}  // namespace lockstep
