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

template <class T>
bool IsFinite(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return value - value == 0;
  } else {
    return true;
  }
}

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

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
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
struct Unfinished {};
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

// One type and one reduction. `Result` is T for finished values, Acc for sums.
template <class T, class Acc, class Convert, class Op, class Result, class Finish>
class Reduction {
 public:
  Reduction(std::span<const Source> sources, const Finish& finish)
      : sources_(sources), finish_(finish) {
    simple_ = sources.size() <= 4;
    for (const Source& source : sources) {
      simple_ = simple_ && source.level == 0 && !(source.partial && !kSameType);
    }
  }

  // Elements [begin, begin + block) into `results`. A few values in one pass, many over a stack of
  // sums in the cache.
  void Block(std::int64_t begin, std::int64_t block, Result* HWY_RESTRICT results) {
    if (simple_) return Few(begin, block, results);
    depth_ = 0;
    for (std::size_t s = 0; s < sources_.size();) {
      s += Push(s, begin, block);
      while (depth_ > 1 && levels_[depth_ - 2] == levels_[depth_ - 1]) Join(block);
    }
    while (depth_ > 1) Join(block);
    const Acc* sum = sums_[0];
    for (std::int64_t i = 0; i < block; ++i) results[i] = Finished(sum[i]);
  }

 private:
  static constexpr bool kSameType = std::is_same_v<T, Acc>;
  // Blocks on the stack have falling levels; 2^14 ranks there are not.
  static constexpr std::size_t kDepthMax = 16;

  Result Finished(Acc value) const {
    if constexpr (std::is_same_v<Finish, Unfinished>) {
      return value;
    } else {
      return Convert::store(finish_(value));
    }
  }
  const T* Values(std::size_t s, std::int64_t begin) const {
    return reinterpret_cast<const T*>(sources_[s].data) + begin;
  }

  void Few(std::int64_t begin, std::int64_t block, Result* HWY_RESTRICT results) const {
    const std::size_t last = sources_.size() - 1;
    const T* a = Values(0, begin);
    const T* b = Values(std::min<std::size_t>(1, last), begin);
    const T* c = Values(std::min<std::size_t>(2, last), begin);
    const T* d = Values(last, begin);
    switch (last) {
      case 0:
        for (std::int64_t i = 0; i < block; ++i) results[i] = Finished(Load(a[i]));
        break;
      case 1:
        for (std::int64_t i = 0; i < block; ++i) results[i] = Finished(Merge(a[i], b[i]));
        break;
      case 2:
        for (std::int64_t i = 0; i < block; ++i) {
          results[i] = Finished(Op::template apply<Acc>(Merge(a[i], b[i]), Load(c[i])));
        }
        break;
      default:
        for (std::int64_t i = 0; i < block; ++i) {
          results[i] = Finished(Op::template apply<Acc>(Merge(a[i], b[i]), Merge(c[i], d[i])));
        }
    }
  }
  static Acc Load(T value) { return static_cast<Acc>(Convert::load(value)); }
  static Acc Merge(T a, T b) { return Op::template apply<Acc>(Load(a), Load(b)); }

  // Puts source s on the stack, or the sum of four from s on; how many it took.
  std::size_t Push(std::size_t s, std::int64_t begin, std::int64_t block) {
    LOCKSTEP_CHECK(depth_ < kDepthMax);
    Acc* HWY_RESTRICT sum = sums_[depth_];
    if (IsQuad(s)) {
      const T* a = Values(s, begin);
      const T* b = Values(s + 1, begin);
      const T* c = Values(s + 2, begin);
      const T* d = Values(s + 3, begin);
      for (std::int64_t i = 0; i < block; ++i) {
        sum[i] = Op::template apply<Acc>(Merge(a[i], b[i]), Merge(c[i], d[i]));
      }
      levels_[depth_++] = 2;
      return 4;
    }
    if (sources_[s].partial) {
      std::memcpy(sum, reinterpret_cast<const Acc*>(sources_[s].data) + begin,
                  static_cast<std::size_t>(block) * sizeof(Acc));
    } else {
      const T* values = Values(s, begin);
      for (std::int64_t i = 0; i < block; ++i) sum[i] = Load(values[i]);
    }
    levels_[depth_++] = sources_[s].level;
    return 1;
  }
  // Four single values that make up a block of their own.
  bool IsQuad(std::size_t s) const {
    if (s + 4 > sources_.size() || (depth_ > 0 && levels_[depth_ - 1] < 2)) return false;
    for (std::size_t i = s; i < s + 4; ++i) {
      if (sources_[i].level != 0 || (sources_[i].partial && !kSameType)) return false;
    }
    return true;
  }
  void Join(std::int64_t block) {
    Acc* HWY_RESTRICT left = sums_[depth_ - 2];
    const Acc* HWY_RESTRICT right = sums_[depth_ - 1];
    for (std::int64_t i = 0; i < block; ++i) left[i] = Op::template apply<Acc>(left[i], right[i]);
    --depth_;
    ++levels_[depth_ - 1];
  }

  const std::span<const Source> sources_;
  const Finish finish_;
  bool simple_ = false;
  std::size_t depth_ = 0;
  std::uint8_t levels_[kDepthMax];
  alignas(64) Acc sums_[kDepthMax][kBlockCount];
};

// The sum of two values of the type itself, in vectors: straight from memory to memory, which
// matters where gradients are added. `to` and `other` (null: there is one destination) may be the
// sources.
// `seen`: where sums that are not finite are reported, before anything is stored over the values
// that made them; null: not at all.
template <class T, class Finish, class Seen>
void SumOfTwo(T* to, T* other, const T* a, const T* b, std::int64_t count, const Finish& finish,
              bool stream, const Seen& seen) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto sum_at = [&](std::int64_t i) {
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    if constexpr (Seen::kLooks && std::is_floating_point_v<T>) {
      // x - x is 0 unless x is an infinity or NaN.
      if (!hn::AllFalse(d, hn::IsNaN(hn::Sub(sum, sum)))) seen(i, lanes);
    }
    if constexpr (std::is_same_v<Finish, Scale<T>>) {
      return hn::Mul(sum, hn::Set(d, finish.factor));
    } else {
      return sum;
    }
  };
  std::int64_t i = 0;
  if constexpr (Seen::kLooks) {
    const std::int64_t rest = count % lanes;
    for (i = count - rest; i < count; ++i) {
      const T sum = Sum::apply<T>(a[i], b[i]);
      if (!IsFinite(sum)) seen(i, 1);
    }
    i = 0;
  }
  if (other == nullptr) {
    for (; i + lanes <= count; i += lanes) hn::StoreU(sum_at(i), d, to + i);
    for (; i < count; ++i) to[i] = finish(Sum::apply<T>(a[i], b[i]));
    return;
  }
  if (stream && reinterpret_cast<std::uintptr_t>(other) % (lanes * sizeof(T)) == 0) {
    for (; i + lanes <= count; i += lanes) {
      const auto sum = sum_at(i);
      hn::StoreU(sum, d, to + i);
      hn::Stream(sum, d, other + i);
    }
  } else {
    for (; i + lanes <= count; i += lanes) {
      const auto sum = sum_at(i);
      hn::StoreU(sum, d, to + i);
      hn::StoreU(sum, d, other + i);
    }
  }
  for (; i < count; ++i) to[i] = other[i] = finish(Sum::apply<T>(a[i], b[i]));
}

// What is not finite in a reduction: looks at the sources where a result was not.
struct Blind {
  static constexpr bool kLooks = false;
  void operator()(std::int64_t, std::int64_t) const {}
};
template <class T, class Acc, class Convert>
class Watch {
 public:
  static constexpr bool kLooks = true;
  Watch(std::span<const Source> sources, int* not_finite)
      : sources_(sources), not_finite_(not_finite) {}

  // A result among [begin, begin + count) is not finite, and its sources still stand.
  void operator()(std::int64_t begin, std::int64_t count) const {
    const int last = static_cast<int>(sources_.size());
    if (*not_finite_ >= 0 && *not_finite_ < last) return;
    *not_finite_ = last;
    for (int s = 0; s < last && *not_finite_ == last; ++s) {
      for (std::int64_t i = begin; i < begin + count; ++i) {
        if (!IsFinite(Value(sources_[static_cast<std::size_t>(s)], i))) *not_finite_ = s;
      }
    }
  }

 private:
  static Acc Value(const Source& source, std::int64_t i) {
    if (source.partial) return reinterpret_cast<const Acc*>(source.data)[i];
    return static_cast<Acc>(Convert::load(reinterpret_cast<const T*>(source.data)[i]));
  }
  const std::span<const Source> sources_;
  int* const not_finite_;
};

// What SumOfTwo can do.
template <class T, class Acc, class Op, class Finish>
constexpr bool kHasVectorSum =
    std::is_same_v<Op, Sum>&& std::is_same_v<T, Acc> && !std::is_same_v<T, bool> &&
    (std::is_same_v<Finish, Keep> || std::is_same_v<Finish, Scale<T>>);

template <class T, class Acc, class Convert, class Op, class Finish, class Seen>
void ReduceSeen(std::span<std::byte* const> destinations, std::span<const Source> sources,
                std::int64_t count, const Finish& finish, Stores others, const Seen& seen) {
  const bool stream = others == Stores::past_cache;
  if constexpr (kHasVectorSum<T, Acc, Op, Finish>) {
    if (sources.size() == 2 && destinations.size() <= 2) {
      T* const other = destinations.size() == 2 ? reinterpret_cast<T*>(destinations[1]) : nullptr;
      SumOfTwo(reinterpret_cast<T*>(destinations[0]), other,
               reinterpret_cast<const T*>(sources[0].data),
               reinterpret_cast<const T*>(sources[1].data), count, finish, stream, seen);
      if (stream) hwy::FlushStream();
      return;
    }
  }
  using Result = std::conditional_t<std::is_same_v<Finish, Unfinished>, Acc, T>;
  Reduction<T, Acc, Convert, Op, Result, Finish> reduction(sources, finish);
  alignas(64) Result results[kBlockCount];
  for (std::int64_t begin = 0; begin < count; begin += kBlockCount) {
    const std::int64_t block = std::min(kBlockCount, count - begin);
    reduction.Block(begin, block, results);
    if constexpr (Seen::kLooks) {
      bool finite = true;
      for (std::int64_t i = 0; i < block; ++i) finite &= IsFinite(Convert::load(results[i]));
      if (!finite) seen(begin, block);
    }
    const std::size_t bytes = static_cast<std::size_t>(block) * sizeof(Result);
    for (std::size_t d = 0; d < destinations.size(); ++d) {
      std::byte* to = destinations[d] + static_cast<std::size_t>(begin) * sizeof(Result);
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

template <class T, class Acc, class Convert, class Op, class Finish>
void ReduceAs(std::span<std::byte* const> destinations, std::span<const Source> sources,
              std::int64_t count, const Finish& finish, Stores others, int* not_finite) {
  // Only gradients are watched, which are sums and means of fractions.
  constexpr bool kWatched = std::is_floating_point_v<Acc> && std::is_same_v<Op, Sum> &&
                            !std::is_same_v<Finish, Unfinished>;
  if constexpr (kWatched) {
    if (not_finite != nullptr) {
      return ReduceSeen<T, Acc, Convert, Op>(destinations, sources, count, finish, others,
                                             Watch<T, Acc, Convert>(sources, not_finite));
    }
  }
  ReduceSeen<T, Acc, Convert, Op>(destinations, sources, count, finish, others, Blind());
}

template <class T, class Acc, class Convert>
void ReduceMean(std::span<std::byte* const> destinations, std::span<const Source> sources,
                std::int64_t count, std::int64_t mean_of, Stores others, int* not_finite) {
  if constexpr (!std::is_same_v<Acc, bool>) {
    const bool power_of_two = (mean_of & (mean_of - 1)) == 0;
    if constexpr (std::is_floating_point_v<Acc>) {
      if (power_of_two) {
        return ReduceAs<T, Acc, Convert, Sum>(destinations, sources, count,
                                              Scale<Acc>{Acc{1} / static_cast<Acc>(mean_of)},
                                              others, not_finite);
      }
    }
    ReduceAs<T, Acc, Convert, Sum>(destinations, sources, count,
                                   Divide<Acc>{static_cast<typename Divide<Acc>::Divisor>(mean_of)},
                                   others, not_finite);
  }
}

template <class T, class Acc, class Convert, class Op>
void ReduceWith(std::span<std::byte* const> destinations, std::span<const Source> sources,
                std::int64_t count, bool finish, Stores others, int* not_finite) {
  if (finish) {
    ReduceAs<T, Acc, Convert, Op>(destinations, sources, count, Keep(), others, not_finite);
  } else {
    ReduceAs<T, Acc, Convert, Op>(destinations, sources, count, Unfinished(), others, not_finite);
  }
}

template <class T, class Acc, class Convert>
void ReduceOp(std::span<std::byte* const> destinations, std::span<const Source> sources,
              std::int64_t count, Reduce op, std::int64_t mean_of, bool finish, Stores others,
              int* not_finite) {
  switch (op) {
    case Reduce::mean:
      if (finish)
        return ReduceMean<T, Acc, Convert>(destinations, sources, count, mean_of, others,
                                           not_finite);
      [[fallthrough]];
    case Reduce::sum:
      return ReduceWith<T, Acc, Convert, Sum>(destinations, sources, count, finish, others,
                                              not_finite);
    case Reduce::min:
      return ReduceWith<T, Acc, Convert, Min>(destinations, sources, count, finish, others,
                                              not_finite);
    case Reduce::max:
      return ReduceWith<T, Acc, Convert, Max>(destinations, sources, count, finish, others,
                                              not_finite);
    case Reduce::product:
      return ReduceWith<T, Acc, Convert, Product>(destinations, sources, count, finish, others,
                                                  not_finite);
    case Reduce::band:
    case Reduce::bor:
    case Reduce::bxor:
      break;
  }
  if constexpr (std::is_integral_v<Acc>) {
    if (op == Reduce::band) {
      return ReduceWith<T, Acc, Convert, And>(destinations, sources, count, finish, others,
                                              not_finite);
    }
    if (op == Reduce::bor) {
      return ReduceWith<T, Acc, Convert, Or>(destinations, sources, count, finish, others,
                                             not_finite);
    }
    return ReduceWith<T, Acc, Convert, Xor>(destinations, sources, count, finish, others,
                                            not_finite);
  }
}

void ReduceAny(std::span<std::byte* const> destinations, std::span<const Source> sources,
               std::int64_t count, DType dtype, Reduce op, std::int64_t mean_of, bool finish,
               Stores others, int* not_finite) {
  const auto as = [&]<class T, class Acc, class Convert>() {
    ReduceOp<T, Acc, Convert>(destinations, sources, count, op, mean_of, finish, others,
                              not_finite);
  };
  switch (dtype) {
    case DType::boolean:
      return as.template operator()<bool, bool, AsIs>();
    case DType::u8:
      return as.template operator()<std::uint8_t, std::uint8_t, AsIs>();
    case DType::i8:
      return as.template operator()<std::int8_t, std::int8_t, AsIs>();
    case DType::i32:
      return as.template operator()<std::int32_t, std::int32_t, AsIs>();
    case DType::i64:
      return as.template operator()<std::int64_t, std::int64_t, AsIs>();
    case DType::f16:
      return as.template operator()<std::uint16_t, float, Half>();
    case DType::bf16:
      return as.template operator()<std::uint16_t, float, BFloat>();
    case DType::f32:
      return as.template operator()<float, float, AsIs>();
    case DType::f64:
      return as.template operator()<double, double, AsIs>();
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

void reduce(std::span<std::byte* const> destinations, std::span<const Source> sources,
            std::int64_t count, DType dtype, Reduce op, std::int64_t mean_of, Stores others,
            int* not_finite) {
  LOCKSTEP_CHECK(!destinations.empty() && !sources.empty() && is_defined(op, dtype));
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(ReduceAny)
  (destinations, sources, count, dtype, op, mean_of, true, others, not_finite);
}

void reduce_partial(std::byte* destination, std::span<const Source> sources, std::int64_t count,
                    DType dtype, Reduce op) {
  LOCKSTEP_CHECK(!sources.empty() && is_defined(op, dtype));
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(ReduceAny)
  ({&destination, 1}, sources, count, dtype, op, 1, false, Stores::through_cache, nullptr);
}

void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes, Stores stores) {
  if (bytes == 0 || destination == source) return;
  if (stores == Stores::past_cache) {
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
