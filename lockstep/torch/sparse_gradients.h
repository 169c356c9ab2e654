// Sparse gradients (of embeddings): only the rows that some rank has touched travel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/group/group.h"

namespace lockstep {

// Collective. The sum over the ranks of COO tensors of one shape and type, divided by `mean_of`;
// coalesced, the same bits on every rank. `gradient` may be undefined: this rank has none.
// Undefined if no rank has any. Rows of one index are merged before they travel; what several ranks
// have is added in rank order, half types in f32. Throws Error(invalid_argument), naming `name`,
// for a dense gradient.
//
// Costs three small collectives and the rows of all ranks on every rank: for gradients of which
// most rows are absent.
at::Tensor reduce_sparse(const at::Tensor& gradient, const at::Tensor& parameter,
                         std::int64_t mean_of, Group& group, const std::string& name);

}  // namespace lockstep
