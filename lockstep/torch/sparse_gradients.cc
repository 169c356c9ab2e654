#include "lockstep/torch/sparse_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

constexpr std::int64_t kNone = -1;

// What a rank contributes: `indices` rows × sparse dimensions, `values` rows × the rest.
struct Rows {
  std::int64_t sparse_dim = 1;
  at::Tensor indices;
  at::Tensor values;
};

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

Rows rows_of(const at::Tensor& gradient, const at::Tensor& parameter) {
  const at::ScalarType type = parameter.scalar_type();
  const auto wide = is_half(type) ? at::kFloat : type;
  Rows rows;
  if (!gradient.defined()) {
    auto sizes = parameter.sizes().vec();
    sizes[0] = 0;
    rows.indices = at::zeros({0, 1}, at::kLong);
    rows.values = at::zeros(sizes, parameter.options().dtype(wide).requires_grad(false));
    return rows;
  }
  const at::Tensor merged = gradient.detach().to(wide).coalesce();
  rows.sparse_dim = merged.sparse_dim();
  rows.indices = merged.indices().t().contiguous();
  rows.values = merged.values().contiguous();
  return rows;
}

// All ranks' rows, in rank order.
at::Tensor gather_rows(const at::Tensor& own, const std::vector<std::int64_t>& row_counts,
                       Group& group) {
  auto sizes = own.sizes().vec();
  sizes[0] = std::accumulate(row_counts.begin(), row_counts.end(), std::int64_t{0});
  at::Tensor all = at::empty(sizes, own.options());
  const TensorView view(own);
  const std::int64_t per_row =
      std::accumulate(sizes.begin() + 1, sizes.end(), std::int64_t{1}, std::multiplies<>()) *
      (view.complex ? 2 : 1);
  std::vector<std::int64_t> counts;
  for (const std::int64_t rows : row_counts) counts.push_back(rows * per_row);
  // Parts of complex numbers are numbers of their own here.
  const TensorView whole(all);
  group.all_gather({whole.data, whole.count, whole.dtype}, {view.data, view.count, view.dtype},
                   counts);
  return all;
}

}  // namespace

at::Tensor reduce_sparse(const at::Tensor& gradient, const at::Tensor& parameter,
                         std::int64_t mean_of, Group& group, const std::string& name) {
  const at::NoGradGuard no_grad;
  if (gradient.defined() && gradient.layout() != at::kSparse) {
    fail(Code::invalid_argument,
         "the gradient of '{}', which was declared sparse, is dense on rank {}: leave it out of "
         "DistributedOptions::sparse, or make its embedding sparse everywhere",
         name, group.rank());
  }
  Rows rows = rows_of(gradient, parameter);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()));
  std::int64_t own = gradient.defined() ? rows.values.size(0) : kNone;
  group.all_gather({counts.data(), static_cast<std::int64_t>(counts.size()), DType::i64},
                   {&own, 1, DType::i64});
  if (std::all_of(counts.begin(), counts.end(), [](auto count) { return count == kNone; })) {
    return {};
  }
  for (std::int64_t& count : counts) count = std::max<std::int64_t>(count, 0);
  const at::Tensor indices = gather_rows(rows.indices, counts, group);
  at::Tensor values = gather_rows(rows.values, counts, group);
  at::Tensor sum = at::sparse_coo_tensor(indices.t(), values, parameter.sizes()).coalesce();
  values = sum.values().div_(mean_of).to(parameter.scalar_type());
  return at::sparse_coo_tensor(sum.indices(), values, parameter.sizes())._coalesced_(true);
}

}  // namespace lockstep
