#include "lockstep/reducer/communication_hook.h"

#include <map>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/kernels/convert.h"

namespace lockstep {

CommunicationHook compress_to(DType wire) {
  if (wire != DType::f16 && wire != DType::bf16) {
    fail(Code::invalid_argument, "gradients can be sent as f16 or bf16, not as {}",
         to_string(wire));
  }
  // Memory for each bucket, kept from step to step.
  auto buffers = std::make_shared<std::map<std::size_t, std::vector<std::uint16_t>>>();
  return [wire, buffers](const GradientBucket& bucket, const ReduceBucket& next) {
    const TensorView full = bucket.tensor;
    if (full.dtype != DType::f32 && full.dtype != DType::f64) return next(bucket);
    auto& buffer = (*buffers)[bucket.index];
    buffer.resize(static_cast<std::size_t>(full.count));
    auto* small = reinterpret_cast<std::byte*>(buffer.data());
    auto* large = static_cast<std::byte*>(full.data);
    convert(small, wire, large, full.dtype, full.count);
    GradientBucket compressed = bucket;
    compressed.tensor = {small, full.count, wire};
    Reduction reduction = next(compressed);
    reduction.then = [then = std::move(reduction.then), small, large, full, wire] {
      if (then) then();
      convert(large, full.dtype, small, wire, full.count);
    };
    return reduction;
  };
}

}  // namespace lockstep
