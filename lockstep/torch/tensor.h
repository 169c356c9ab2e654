// at::Tensor as the memory that collectives take: `group.all_reduce(tensor)`.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/types.h"

namespace lockstep {

// Throws Error(unsupported) for element types that have no reduction here (complex, quantized).
DType dtype_of(const at::Tensor& tensor);

template <>
struct ViewOf<at::Tensor> {
  // A strided CPU tensor in any layout: elements meet by their index, so ranks may hold them in
  // different orders (channels last, transposed, every second column …), and each keeps its own.
  // Complex tensors are seen as pairs of their parts. The view refers to the tensor's sizes and
  // strides. Throws Error(unsupported), naming layout, device or element type, for all else.
  static TensorView view(const at::Tensor& tensor);
};

}  // namespace lockstep
