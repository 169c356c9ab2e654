#include "lockstep/engine/staging.h"

#include <cstring>

namespace lockstep {

namespace {

// `count` elements from one place to another, each so many elements behind the last.
template <std::size_t kBytes>
void copy_elements(std::byte* to, std::int64_t to_stride, const std::byte* from,
                   std::int64_t from_stride, std::int64_t count) {
  constexpr auto kStep = static_cast<std::int64_t>(kBytes);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride * kStep, from + i * from_stride * kStep, kBytes);
  }
}

using CopyElements = void (*)(std::byte*, std::int64_t, const std::byte*, std::int64_t,
                              std::int64_t);

CopyElements copy_for(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return copy_elements<1>;
    case 2:
      return copy_elements<2>;
    case 4:
      return copy_elements<4>;
    case 8:
      return copy_elements<8>;
    default:
      return copy_elements<16>;
  }
}

}  // namespace

bool has_row_major_strides(const TensorView& tensor) {
  if (tensor.count == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.sizes[i];
  }
  return true;
}

// Calls visit(offset in the tensor, offset in the copy) for each row, in elements. There are some.
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
      element_bytes_(size_of(tensor.dtype) * (tensor.complex ? 2 : 1)),
      sizes_(tensor.sizes.begin(), tensor.sizes.end()),
      strides_(tensor.strides.begin(), tensor.strides.end()),
      writes_(writes),
      copy_(new std::byte[tensor.bytes()]) {
  if (!reads) return;
  const CopyElements copy = copy_for(element_bytes_);
  for_each_row([&](std::int64_t from, std::int64_t to) {
    copy(in_copy(to), 1, in_tensor(from), strides_.back(), sizes_.back());
  });
}

void Staging::finish() const {
  if (!writes_) return;
  const CopyElements copy = copy_for(element_bytes_);
  for_each_row([&](std::int64_t to, std::int64_t from) {
    copy(in_tensor(to), strides_.back(), in_copy(from), 1, sizes_.back());
  });
}

std::byte* Staging::in_tensor(std::int64_t number) const {
  return tensor_ + number * static_cast<std::int64_t>(element_bytes_);
}

std::byte* Staging::in_copy(std::int64_t number) const {
  return copy_.get() + number * static_cast<std::int64_t>(element_bytes_);
}

}  // namespace lockstep
