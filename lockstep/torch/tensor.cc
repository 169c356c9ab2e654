#include "lockstep/torch/tensor.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep {

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return DType::boolean;
    case at::kByte:
      return DType::u8;
    case at::kChar:
      return DType::i8;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    default:
      fail(Code::unsupported, "tensors of type {} cannot be reduced",
           at::toString(tensor.scalar_type()));
  }
}

TensorView ViewOf<at::Tensor>::view(const at::Tensor& tensor) {
  if (!tensor.defined()) fail(Code::invalid_argument, "the tensor is undefined");
  if (!tensor.device().is_cpu()) {
    fail(Code::unsupported, "a tensor on device {}: this build works on CPU tensors",
         tensor.device().str());
  }
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense()) {
    fail(Code::unsupported,
         "a tensor that is not dense in memory (sizes and strides leave gaps): call contiguous()");
  }
  return {tensor.data_ptr(), tensor.numel(), dtype_of(tensor)};
}

}  // namespace lockstep
