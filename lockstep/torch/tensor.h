// at::Tensor as the memory that collectives take: `group.all_reduce(tensor)`.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/types.h"

namespace lockstep {

// Throws Error(unsupported) for element types that have no reduction here (complex, quantized).
DType dtype_of(const at::Tensor& tensor);

template <>
struct ViewOf<at::Tensor> {
  // A CPU tensor that is dense in memory, in any dimension order; elements are taken in memory
  // order, so all ranks need the same strides. Throws Error(unsupported) otherwise.
  static TensorView view(const at::Tensor& tensor);
};

}  // namespace lockstep
