#include "lockstep/kernels/convert.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/kernels/half.h"

// Highway compiles the part between BEFORE and AFTER once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/convert.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

struct Half {
  static float load(std::uint16_t bits) { return kernels::half_to_float(bits); }
  static std::uint16_t store(float value) { return kernels::float_to_half(value); }
};
struct BFloat {
  static float load(std::uint16_t bits) { return kernels::bfloat_to_float(bits); }
  static std::uint16_t store(float value) { return kernels::float_to_bfloat(value); }
};
template <class T>
struct Full {
  static T load(T value) { return value; }
  template <class From>
  static T store(From value) {
    return static_cast<T>(value);
  }
};

template <class To, class ToType, class From, class FromType>
void ConvertAs(void* HWY_RESTRICT to, const void* HWY_RESTRICT from, std::int64_t count) {
  auto* results = static_cast<ToType*>(to);
  const auto* values = static_cast<const FromType*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(ToType) == 2) {
      results[i] = To::store(static_cast<float>(From::load(values[i])));
    } else {
      results[i] = To::store(From::load(values[i]));
    }
  }
}

template <class To, class ToType>
void ConvertTo(void* to, const void* from, DType from_type, std::int64_t count) {
  switch (from_type) {
    case DType::f16:
      return ConvertAs<To, ToType, Half, std::uint16_t>(to, from, count);
    case DType::bf16:
      return ConvertAs<To, ToType, BFloat, std::uint16_t>(to, from, count);
    case DType::f32:
      return ConvertAs<To, ToType, Full<float>, float>(to, from, count);
    default:
      return ConvertAs<To, ToType, Full<double>, double>(to, from, count);
  }
}

void ConvertAny(void* to, DType to_type, const void* from, DType from_type, std::int64_t count) {
  switch (to_type) {
    case DType::f16:
      return ConvertTo<Half, std::uint16_t>(to, from, from_type, count);
    case DType::bf16:
      return ConvertTo<BFloat, std::uint16_t>(to, from, from_type, count);
    case DType::f32:
      return ConvertTo<Full<float>, float>(to, from, from_type, count);
    default:
      return ConvertTo<Full<double>, double>(to, from, from_type, count);
  }
}

// All bits of the exponent are set in an infinity and in a NaN, and in nothing else.
template <class Bits>
bool AllFinite(const void* from, std::int64_t count, Bits exponent) {
  const auto* values = static_cast<const Bits*>(from);
  constexpr std::int64_t kBlockCount = 4096;
  for (std::int64_t begin = 0; begin < count; begin += kBlockCount) {
    const std::int64_t end = std::min(count, begin + kBlockCount);
    Bits found = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      found = static_cast<Bits>(found | ((values[i] & exponent) == exponent ? 1 : 0));
    }
    if (found != 0) return false;
  }
  return true;
}

bool FiniteAny(const void* values, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::f16:
      return AllFinite<std::uint16_t>(values, count, 0x7c00);
    case DType::bf16:
      return AllFinite<std::uint16_t>(values, count, 0x7f80);
    case DType::f32:
      return AllFinite<std::uint32_t>(values, count, 0x7f800000);
    case DType::f64:
      return AllFinite<std::uint64_t>(values, count, 0x7ff0000000000000);
    default:
      return true;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(ConvertAny);
HWY_EXPORT(FiniteAny);

namespace {

bool is_fraction(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

}  // namespace

void convert(std::byte* to, DType to_type, const std::byte* from, DType from_type,
             std::int64_t count) {
  LOCKSTEP_CHECK(is_fraction(to_type) && is_fraction(from_type));
  if (count == 0) return;
  if (to_type == from_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_type));
    return;
  }
  HWY_DYNAMIC_DISPATCH(ConvertAny)(to, to_type, from, from_type, count);
}

bool all_finite(const std::byte* values, DType dtype, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(FiniteAny)(values, dtype, count);
}

}  // namespace lockstep
#endif  // HWY_ONCE
