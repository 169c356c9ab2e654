// Staging: a row-major copy of a tensor that lies in memory in another order (channels last, a
// transposed view, every second column …), so that ranks whose tensors lie differently agree on
// which element is which.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/types.h"

namespace lockstep {

// Whether the elements of `tensor` follow one another in row-major order. (Nothing always does.)
bool has_row_major_strides(const TensorView& tensor);
inline bool is_row_major(const TensorView& tensor) {
  return tensor.sizes.empty() || has_row_major_strides(tensor);
}

class Staging {
 public:
  // The tensor is not row-major, so it has elements. `reads`: the copy starts with the tensor's
  // values. `writes`: finish() gives them back.
  Staging(const TensorView& tensor, bool reads, bool writes);

  std::byte* data() const { return copy_.get(); }
  void finish() const;

 private:
  template <class Visit>
  void for_each_row(const Visit& visit) const;
  std::byte* in_tensor(std::int64_t element) const;
  std::byte* in_copy(std::int64_t element) const;

  std::byte* const tensor_;
  const std::size_t element_bytes_;  // a complex number is one element here
  const std::vector<std::int64_t> sizes_;
  const std::vector<std::int64_t> strides_;
  const bool writes_;
  const std::unique_ptr<std::byte[]> copy_;
};

}  // namespace lockstep
