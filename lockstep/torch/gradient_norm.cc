#include "lockstep/torch/gradient_norm.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/slice.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

// What one rank adds up at a time. Fixed, so that the sum does not depend on the ranks.
constexpr std::int64_t kPieceCount = 1 << 16;

struct Piece {
  const std::byte* values;
  DType dtype;
  std::int64_t count;
};

// The memory of a gradient's values, whatever their order: a sum of squares has none.
at::Tensor values_of(const at::Tensor& gradient) {
  const at::Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

}  // namespace

double gradient_norm(const std::vector<at::Tensor>& parameters, Group& group) {
  std::vector<at::Tensor> keep;
  std::vector<Piece> pieces;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    keep.push_back(values_of(parameter.grad().detach()));
    const at::Tensor& values = keep.back();
    const DType dtype = TensorView(values).dtype;
    const std::int64_t count = values.numel() * (values.is_complex() ? 2 : 1);
    const auto* data = static_cast<const std::byte*>(values.data_ptr());
    for (std::int64_t i = 0; i < chunks_in(count, kPieceCount); ++i) {
      const Range piece = chunk_of({0, count}, kPieceCount, i);
      pieces.push_back(
          {data + static_cast<std::size_t>(piece.begin) * size_of(dtype), dtype, piece.count});
    }
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
  std::vector<double> sums(pieces.size());
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    counts.push_back(slice_of({0, count}, group.size(), rank).count);
  }
  const Range mine = slice_of({0, count}, group.size(), group.rank());
  for (std::int64_t i = mine.begin; i < mine.end(); ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    sums[static_cast<std::size_t>(i)] = sum_of_squares(piece.values, piece.dtype, piece.count);
  }
  group.all_gather({sums.data(), count, DType::f64},
                   {sums.data() + mine.begin, mine.count, DType::f64}, counts);
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

double clip_gradients(const std::vector<at::Tensor>& parameters, double norm_max, Group& group) {
  if (!(norm_max > 0)) {
    fail(Code::invalid_argument, "clip_gradients: norm_max is {}, must be positive", norm_max);
  }
  const double norm = gradient_norm(parameters, group);
  if (!std::isfinite(norm) || norm <= norm_max) return norm;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.grad().mul_(norm_max / norm);
  }
  return norm;
}

}  // namespace lockstep
