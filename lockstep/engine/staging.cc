#include "lockstep/engine/staging.h"

#include <cstring>

namespace lockstep {

bool is_row_major(const TensorView& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.sizes[i];
  }
  return true;
}

// Calls visit(offset in the tensor, offset in the copy) for each row, in elements.
template <class Visit>
void Staging::for_each_row(const Visit& visit) const {
  const std::size_t outer = sizes_.size() - 1;
  const std::int64_t row = sizes_[outer];
  std::vector<std::int64_t> index(outer, 0);
  for (std::int64_t at = 0;; at += row) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < outer; ++d) offset += index[d] * strides_[d];
    visit(offset, at);
    std::size_t d = outer;
    while (d > 0 && ++index[d - 1] == sizes_[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

Staging::Staging(const TensorView& tensor, bool reads, bool writes)
    : tensor_(static_cast<std::byte*>(tensor.data)),
      element_bytes_(size_of(tensor.dtype)),
      sizes_(tensor.sizes.begin(), tensor.sizes.end()),
      strides_(tensor.strides.begin(), tensor.strides.end()),
      count_(tensor.count),
      writes_(writes),
      copy_(new std::byte[tensor.bytes()]) {
  if (!reads || count_ == 0) return;
  for_each_row([&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = 0; i < sizes_.back(); ++i) {
      std::memcpy(copy_.get() + static_cast<std::size_t>(to + i) * element_bytes_,
                  at(from + i * strides_.back()), element_bytes_);
    }
  });
}

void Staging::finish() const {
  if (!writes_ || count_ == 0) return;
  for_each_row([&](std::int64_t to, std::int64_t from) {
    for (std::int64_t i = 0; i < sizes_.back(); ++i) {
      std::memcpy(at(to + i * strides_.back()),
                  copy_.get() + static_cast<std::size_t>(from + i) * element_bytes_,
                  element_bytes_);
    }
  });
}

}  // namespace lockstep
