// Element types and reductions, and the view of memory that every collective takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace lockstep {

enum class DType : std::uint8_t { boolean, u8, i8, i32, i64, f16, bf16, f32, f64 };
inline constexpr int kDTypeCount = 9;

enum class Reduce : std::uint8_t { sum, mean, min, max, product, band, bor, bxor };

// A mean over something else than ranks (samples, tokens): the sum, divided once by `count`, which
// must be the same on all ranks and at least 1.
struct MeanOf {
  std::int64_t count = 1;
};
inline constexpr int kReduceCount = 8;

constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t kSizes[kDTypeCount] = {1, 1, 1, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}

// The type sums are kept in before they are finished: f32 for half types, else the type itself.
constexpr DType accumulation_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

// Whether a reduction has a meaning: bool has no mean, fractions have no bits.
constexpr bool is_defined(Reduce reduce, DType dtype) {
  if (dtype == DType::boolean) return reduce != Reduce::mean;
  const bool bits = reduce == Reduce::band || reduce == Reduce::bor || reduce == Reduce::bxor;
  const bool integer =
      dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i32 || dtype == DType::i64;
  return integer || !bits;
}

std::string_view to_string(DType dtype);
std::string_view to_string(Reduce reduce);

// How a foreign tensor type is seen as raw memory: specialise with a static `view(const T&)`.
// lockstep/torch/tensor.h does it for at::Tensor.
template <class T>
struct ViewOf;

// `count` elements of `dtype` at `data`, one after the other in row-major order unless there are
// strides. Owns nothing: the memory, sizes and strides must outlive every call it is passed to, and
// the memory every Work that such a call returned.
struct TensorView {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  // Sizes and strides of each dimension, in elements. None: row-major.
  std::span<const std::int64_t> sizes = {};
  std::span<const std::int64_t> strides = {};
  // Pairs of elements are complex numbers: `count` counts their parts, sizes and strides count
  // numbers. Only what works on each part by itself makes sense.
  bool complex = false;

  constexpr TensorView() = default;
  constexpr TensorView(void* data_, std::int64_t count_, DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  template <class T>
  requires requires(const T& tensor) { ViewOf<std::remove_cvref_t<T>>::view(tensor); }
  TensorView(const T& tensor)  // NOLINT: tensors are meant to convert
      : TensorView(ViewOf<std::remove_cvref_t<T>>::view(tensor)) {}

  constexpr std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

}  // namespace lockstep
