// Sums over raw memory for norms.
//
// Thread rule: pure functions. The instruction set is chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/types.h"

namespace lockstep {

// The sum of the squares of f16, bf16, f32 or f64 elements, in f64: in one fixed order, the same on
// every machine.
double sum_of_squares(const std::byte* values, DType dtype, std::int64_t count);

}  // namespace lockstep
