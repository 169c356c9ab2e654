// Conversion between floating-point types on raw memory.
//
// Thread rule: pure functions. The instruction set is chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/types.h"

namespace lockstep {

// to[i] = from[i], rounded to nearest even; what is too large becomes an infinity, NaN stays NaN.
// Both types are f16, bf16, f32 or f64; f64 goes through f32 to a half type, and is rounded twice.
// The two may not overlap.
void convert(std::byte* to, DType to_type, const std::byte* from, DType from_type,
             std::int64_t count);

// Whether all elements are finite. Integers are. Any type.
bool all_finite(const std::byte* values, DType dtype, std::int64_t count);

}  // namespace lockstep
