#include "lockstep/kernels/norm.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/half.h"

// Highway compiles the part between BEFORE and AFTER once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/norm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// So many sums side by side: the order of additions is part of the result.
constexpr std::int64_t kSums = 16;

template <class T, class Load>
double SumOfSquaresAs(const void* memory, std::int64_t count, const Load& load) {
  const auto* values = static_cast<const T*>(memory);
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      const double value = load(values[i + j]);
      sums[j] += value * value;
    }
  }
  for (std::int64_t j = 0; i < count; ++i, ++j) {
    const double value = load(values[i]);
    sums[j] += value * value;
  }
  for (std::int64_t half = kSums / 2; half > 0; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

double SumOfSquares(const void* values, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::f16:
      return SumOfSquaresAs<std::uint16_t>(
          values, count, [](std::uint16_t bits) { return kernels::half_to_float(bits); });
    case DType::bf16:
      return SumOfSquaresAs<std::uint16_t>(
          values, count, [](std::uint16_t bits) { return kernels::bfloat_to_float(bits); });
    case DType::f32:
      return SumOfSquaresAs<float>(values, count, [](float value) { return value; });
    default:
      return SumOfSquaresAs<double>(values, count, [](double value) { return value; });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(SumOfSquares);

double sum_of_squares(const std::byte* values, DType dtype, std::int64_t count) {
  LOCKSTEP_CHECK(dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 ||
                 dtype == DType::f64);
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(values, dtype, count);
}

}  // namespace lockstep
#endif  // HWY_ONCE
