#include "lockstep/kernels/reduce.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/kernels/half.h"

// Highway compiles the part between BEFORE and AFTER once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/reduce.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements that are accumulated at a time; the accumulator stays in the first-level cache.
constexpr std::int64_t kBlockCount = 1024;

struct AsIs {
  template <class T>
  static T load(T value) {
    return value;
  }
  template <class T>
  static T store(T value) {
    return value;
  }
};
struct Half {
  static float load(std::uint16_t bits) { return kernels::half_to_float(bits); }
  static std::uint16_t store(float value) { return kernels::float_to_half(value); }
};
struct BFloat {
  static float load(std::uint16_t bits) { return kernels::bfloat_to_float(bits); }
  static std::uint16_t store(float value) { return kernels::float_to_bfloat(value); }
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));  // wraps, never undefined
    else
      return a + b;
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return (a != a || a < b || a == b) ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (a != a || a > b || a == b) ? a : b;
  }
};

// Bypasses the cache with whole vectors; the ragged ends go the ordinary way.
void StreamCopy(std::byte* HWY_RESTRICT to, const std::byte* HWY_RESTRICT from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % lanes;
  const std::size_t head = std::min(bytes, misaligned == 0 ? 0 : lanes - misaligned);
  std::memcpy(to, from, head);
  std::size_t i = head;
  auto* to8 = reinterpret_cast<std::uint8_t*>(to);
  const auto* from8 = reinterpret_cast<const std::uint8_t*>(from);
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::LoadU(d, from8 + i), d, to8 + i);
  std::memcpy(to + i, from + i, bytes - i);
}

// What happens to a finished sum. Multiplying by the reciprocal of a power of two gives the bits of
// the division, in a tenth of the time.
struct Keep {
  template <class Acc>
  Acc operator()(Acc value) const {
    return value;
  }
};
template <class Acc>
struct Divide {
  // Wide enough for any number of ranks, whatever the type that is divided.
  using Divisor = std::conditional_t<std::is_floating_point_v<Acc>, Acc, std::int64_t>;
  Divisor divisor;
  Acc operator()(Acc value) const {
    return static_cast<Acc>(static_cast<Divisor>(value) / divisor);
  }
};
template <class Acc>
struct Scale {
  Acc factor;
  Acc operator()(Acc value) const { return value * factor; }
};

// The sources' elements [begin, begin + block) into `results`, in one pass over the last source.
template <class T, class Acc, class Convert, class Op, class Finish>
void ReduceBlock(std::span<const std::byte* const> sources, std::int64_t begin, std::int64_t block,
                 const Finish& finish, Acc* HWY_RESTRICT sums, T* HWY_RESTRICT results) {
  const auto source = [&](std::size_t s) { return reinterpret_cast<const T*>(sources[s]) + begin; };
  const T* first = source(0);
  const std::size_t count = sources.size();
  if (count == 1) {
    for (std::int64_t i = 0; i < block; ++i) {
      results[i] = Convert::store(finish(static_cast<Acc>(Convert::load(first[i]))));
    }
    return;
  }
  const T* last = source(count - 1);
  if (count == 2) {
    for (std::int64_t i = 0; i < block; ++i) {
      results[i] = Convert::store(
          finish(Op::template apply<Acc>(Convert::load(first[i]), Convert::load(last[i]))));
    }
    return;
  }
  for (std::int64_t i = 0; i < block; ++i) sums[i] = Convert::load(first[i]);
  for (std::size_t s = 1; s + 1 < count; ++s) {
    const T* next = source(s);
    for (std::int64_t i = 0; i < block; ++i) {
      sums[i] = Op::template apply<Acc>(sums[i], Convert::load(next[i]));
    }
  }
  for (std::int64_t i = 0; i < block; ++i) {
    results[i] = Convert::store(finish(Op::template apply<Acc>(sums[i], Convert::load(last[i]))));
  }
}

template <class T, class Acc, class Convert, class Op, class Finish>
void ReduceAs(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
              std::int64_t count, const Finish& finish) {
  alignas(64) Acc sums[kBlockCount];
  alignas(64) T results[kBlockCount];
  const bool stream = static_cast<std::size_t>(count) * sizeof(T) >= kStreamBytesMin;
  for (std::int64_t begin = 0; begin < count; begin += kBlockCount) {
    const std::int64_t block = std::min(kBlockCount, count - begin);
    ReduceBlock<T, Acc, Convert, Op>(sources, begin, block, finish, sums, results);
    const std::size_t bytes = static_cast<std::size_t>(block) * sizeof(T);
    for (std::size_t d = 0; d < destinations.size(); ++d) {
      std::byte* to = destinations[d] + static_cast<std::size_t>(begin) * sizeof(T);
      const auto* from = reinterpret_cast<const std::byte*>(results);
      if (d > 0 && stream) {
        StreamCopy(to, from, bytes);
      } else {
        std::memcpy(to, from, bytes);
      }
    }
  }
  if (stream) hwy::FlushStream();
}

template <class T, class Acc, class Convert>
void ReduceMean(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
                std::int64_t count, int mean_of) {
  if constexpr (!std::is_same_v<Acc, bool>) {
    const bool power_of_two = (mean_of & (mean_of - 1)) == 0;
    if constexpr (std::is_floating_point_v<Acc>) {
      if (power_of_two) {
        return ReduceAs<T, Acc, Convert, Sum>(destinations, sources, count,
                                              Scale<Acc>{Acc{1} / static_cast<Acc>(mean_of)});
      }
    }
    ReduceAs<T, Acc, Convert, Sum>(
        destinations, sources, count,
        Divide<Acc>{static_cast<typename Divide<Acc>::Divisor>(mean_of)});
  }
}

template <class T, class Acc, class Convert>
void ReduceOp(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
              std::int64_t count, Reduce op, int mean_of) {
  switch (op) {
    case Reduce::sum:
      return ReduceAs<T, Acc, Convert, Sum>(destinations, sources, count, Keep());
    case Reduce::mean:
      return ReduceMean<T, Acc, Convert>(destinations, sources, count, mean_of);
    case Reduce::min:
      return ReduceAs<T, Acc, Convert, Min>(destinations, sources, count, Keep());
    case Reduce::max:
      return ReduceAs<T, Acc, Convert, Max>(destinations, sources, count, Keep());
    case Reduce::product:
      return ReduceAs<T, Acc, Convert, Product>(destinations, sources, count, Keep());
  }
}

void ReduceAny(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
               std::int64_t count, DType dtype, Reduce op, int mean_of) {
  switch (dtype) {
    case DType::boolean:
      return ReduceOp<bool, bool, AsIs>(destinations, sources, count, op, mean_of);
    case DType::u8:
      return ReduceOp<std::uint8_t, std::uint8_t, AsIs>(destinations, sources, count, op, mean_of);
    case DType::i8:
      return ReduceOp<std::int8_t, std::int8_t, AsIs>(destinations, sources, count, op, mean_of);
    case DType::i32:
      return ReduceOp<std::int32_t, std::int32_t, AsIs>(destinations, sources, count, op, mean_of);
    case DType::i64:
      return ReduceOp<std::int64_t, std::int64_t, AsIs>(destinations, sources, count, op, mean_of);
    case DType::f16:
      return ReduceOp<std::uint16_t, float, Half>(destinations, sources, count, op, mean_of);
    case DType::bf16:
      return ReduceOp<std::uint16_t, float, BFloat>(destinations, sources, count, op, mean_of);
    case DType::f32:
      return ReduceOp<float, float, AsIs>(destinations, sources, count, op, mean_of);
    case DType::f64:
      return ReduceOp<double, double, AsIs>(destinations, sources, count, op, mean_of);
  }
}

void StreamBytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  StreamCopy(to, from, bytes);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(ReduceAny);
HWY_EXPORT(StreamBytes);

void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            std::int64_t count, DType dtype, Reduce op, int mean_of) {
  LOCKSTEP_CHECK(!destinations.empty() && !sources.empty());
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(ReduceAny)(destinations, sources, count, dtype, op, mean_of);
}

void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes, bool stream) {
  if (bytes == 0 || destination == source) return;
  if (stream && bytes >= kStreamBytesMin) {
    HWY_DYNAMIC_DISPATCH(StreamBytes)(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

float f16_to_f32(std::uint16_t bits) {
  return kernels::half_to_float(bits);
}
std::uint16_t f32_to_f16(float value) {
  return kernels::float_to_half(value);
}
float bf16_to_f32(std::uint16_t bits) {
  return kernels::bfloat_to_float(bits);
}
std::uint16_t f32_to_bf16(float value) {
  return kernels::float_to_bfloat(value);
}

}  // namespace lockstep
#endif  // HWY_ONCE
