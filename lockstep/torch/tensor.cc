#include "lockstep/torch/tensor.h"

#include <ATen/ATen.h>

#include <sstream>
#include <string>

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

namespace {

// The type of a complex number's parts.
DType part_dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kComplexHalf:
      return DType::f16;
    case at::kComplexFloat:
      return DType::f32;
    case at::kComplexDouble:
      return DType::f64;
    default:
      return dtype_of(tensor);
  }
}

std::string name_of(at::Layout layout) {
  std::ostringstream text;
  text << layout;
  return text.str();
}

}  // namespace

TensorView ViewOf<at::Tensor>::view(const at::Tensor& tensor) {
  if (!tensor.defined()) fail(Code::invalid_argument, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) {
    fail(Code::unsupported,
         "a tensor of layout {} and type {} cannot be reduced: only dense ones can; pass "
         "to_dense(), "
         "or its indices and values by themselves",
         name_of(tensor.layout()), at::toString(tensor.scalar_type()));
  }
  if (!tensor.device().is_cpu()) {
    fail(Code::unsupported, "a tensor on device {}: this build works on CPU tensors",
         tensor.device().str());
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    fail(Code::unsupported,
         "a tensor that is conjugated or negated only when it is read: pass resolve_conj() or "
         "resolve_neg() of it");
  }
  TensorView view(tensor.data_ptr(), tensor.numel(), part_dtype_of(tensor));
  view.complex = tensor.is_complex();
  if (view.complex) view.count *= 2;
  if (tensor.is_contiguous()) return view;
  view.sizes = {tensor.sizes().data(), tensor.sizes().size()};
  view.strides = {tensor.strides().data(), tensor.strides().size()};
  return view;
}

}  // namespace lockstep
