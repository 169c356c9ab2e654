// at::Tensor as the memory that collectives take: `group.all_reduce(tensor)`.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/types.h"

namespace lockstep {

template <>
struct ViewOf<at::Tensor> {
  // A CPU tensor that is dense in memory (any dimension order). Throws Error(unsupported) otherwise.
  static TensorView view(const at::Tensor& tensor);
};

}  // namespace lockstep
