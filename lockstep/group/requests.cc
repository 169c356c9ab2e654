#include "lockstep/group/requests.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

void check(const char* what, const TensorView& tensor) {
  if (tensor.count < 0)
    fail(Code::invalid_argument, "{}: a tensor of {} elements", what, tensor.count);
  if (tensor.count > 0 && tensor.data == nullptr) {
    fail(Code::invalid_argument, "{}: the tensor has no memory", what);
  }
  if (tensor.sizes.size() != tensor.strides.size()) {
    fail(Code::invalid_argument, "{}: a tensor with {} sizes and {} strides", what,
         tensor.sizes.size(), tensor.strides.size());
  }
  if (tensor.complex && tensor.count % 2 != 0) {
    fail(Code::invalid_argument, "{}: complex numbers of {} parts, which is odd", what,
         tensor.count);
  }
  if (tensor.sizes.empty()) return;
  std::int64_t count = tensor.complex ? 2 : 1;
  for (const std::int64_t size : tensor.sizes) {
    const bool fits = size >= 0 && !__builtin_mul_overflow(count, size, &count);
    if (!fits) fail(Code::invalid_argument, "{}: a tensor with a dimension of {}", what, size);
  }
  if (count != tensor.count) {
    fail(Code::invalid_argument, "{}: a tensor of {} elements whose sizes [{}] make {}", what,
         tensor.count, fmt::join(tensor.sizes, ", "), count);
  }
}

// Of a tensor that is written, no two elements may be one in memory.
void check_output(const char* what, const TensorView& tensor) {
  check(what, tensor);
  for (std::size_t d = 0; d < tensor.sizes.size() && tensor.count > 0; ++d) {
    if (tensor.strides[d] != 0 || tensor.sizes[d] == 1) continue;
    fail(Code::invalid_argument,
         "{}: the {} elements along dimension {} of the tensor are one in memory (an expanded "
         "tensor?): it cannot be written; pass a copy",
         what, tensor.sizes[d], d);
  }
}

void check_reduction(const char* what, const TensorView& tensor, Reduce reduce) {
  if (!is_defined(reduce, tensor.dtype)) {
    fail(Code::invalid_argument, "{}: {} has no {}{}", what, to_string(tensor.dtype),
         to_string(reduce),
         tensor.dtype == DType::boolean ? "; use sum (or), product (and), bxor" : "");
  }
  if (tensor.complex && reduce != Reduce::sum && reduce != Reduce::mean) {
    fail(Code::invalid_argument, "{}: complex numbers have sum and mean here, no {}", what,
         to_string(reduce));
  }
}

// The first byte of a tensor and the one behind its last.
std::pair<const std::byte*, const std::byte*> extent_of(const TensorView& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.data);
  if (is_row_major(tensor)) return {data, data + tensor.bytes()};
  std::int64_t first = 0, last = 0;  // elements
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    const std::int64_t reach = (tensor.sizes[d] - 1) * tensor.strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype) * (tensor.complex ? 2 : 1));
  return {data + first * element, data + (last + 1) * element};
}

// Two that are interleaved in memory without sharing an element count as overlapping.
bool overlap(const TensorView& a, const TensorView& b) {
  if (a.count == 0 || b.count == 0) return false;
  const auto [a_begin, a_end] = extent_of(a);
  const auto [b_begin, b_end] = extent_of(b);
  return a_begin < b_end && b_begin < a_end;
}

// Whether each element of one is the same element of the other.
bool is_same(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || is_row_major(a) != is_row_major(b)) return false;
  return is_row_major(a) ||
         (std::ranges::equal(a.sizes, b.sizes) && std::ranges::equal(a.strides, b.strides));
}

// The only overlap that is allowed is in place: input is this very part of output, or output this
// part of input.
void check_overlap(const char* what, const TensorView& whole, std::int64_t part_begin,
                   const TensorView& part) {
  if (!overlap(whole, part)) return;
  const auto* at = static_cast<const std::byte*>(whole.data) +
                   part_begin * static_cast<std::int64_t>(size_of(whole.dtype));
  if (part.data == at && is_row_major(whole) && is_row_major(part)) return;
  fail(Code::invalid_argument,
       "{}: input overlaps output; the smaller may only be this rank's own part of the larger",
       what);
}

void check_types(const char* what, const TensorView& output, const TensorView& input) {
  if (output.dtype == input.dtype) return;
  fail(Code::invalid_argument, "{}: output is {}, input {}", what, to_string(output.dtype),
       to_string(input.dtype));
}

void set_data(Request& request, const TensorView& tensor, bool reads) {
  request.dtype = tensor.dtype;
  request.data = static_cast<std::byte*>(tensor.data);
  if (is_row_major(tensor)) return;
  request.staged_data = std::make_shared<const Staging>(tensor, reads, true);
  request.data = request.staged_data->data();
}

void set_input(Request& request, const TensorView& tensor) {
  request.dtype = tensor.dtype;
  request.input = static_cast<const std::byte*>(tensor.data);
  if (is_row_major(tensor)) return;
  request.staged_input = std::make_shared<const Staging>(tensor, true, false);
  request.input = request.staged_input->data();
}

std::int64_t before(std::span<const std::int64_t> counts, int rank, std::int64_t part) {
  if (counts.empty()) return rank * part;
  std::int64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += counts[static_cast<std::size_t>(r)];
  return sum;
}

}  // namespace

void Requests::check_root(const char* what, int root) const {
  if (root >= 0 && root < size_) return;
  fail(Code::invalid_argument, "{}: root {} is not a rank (0..{})", what, root, size_ - 1);
}

void Requests::check_peer(const char* what, int peer) const {
  if (peer < 0 || peer >= size_) {
    fail(Code::invalid_argument, "{}: {} is not a rank (0..{})", what, peer, size_ - 1);
  }
  if (peer == rank_) fail(Code::invalid_argument, "{}: rank {} is this rank itself", what, peer);
}

// How many elements all parts make up.
std::int64_t Requests::whole(const char* what, std::span<const std::int64_t> counts,
                             std::int64_t part) const {
  if (counts.empty()) return part * size_;
  if (static_cast<int>(counts.size()) != size_) {
    fail(Code::invalid_argument, "{}: {} counts for {} ranks", what, counts.size(), size_);
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) fail(Code::invalid_argument, "{}: a count of {}", what, count);
    sum += count;
  }
  return sum;
}

// How many elements this rank's part has.
std::int64_t Requests::part(std::span<const std::int64_t> counts, std::int64_t whole) const {
  if (counts.empty()) return whole / size_;
  return counts[static_cast<std::size_t>(rank_)];
}

Request Requests::all_reduce(const TensorView& output, const TensorView& input,
                             Reduce reduce) const {
  constexpr const char* kWhat = "all_reduce";
  check_output(kWhat, output);
  check_reduction(kWhat, output, reduce);
  Request request;
  request.operation = Operation::all_reduce;
  request.reduce = reduce;
  request.count = output.count;
  bool in_place = &input == &output;  // one view, which has been checked
  if (!in_place) {
    check(kWhat, input);
    check_types(kWhat, output, input);
    if (output.count != input.count) {
      fail(Code::invalid_argument, "{}: output has {} elements, input {}", kWhat, output.count,
           input.count);
    }
    in_place = is_same(output, input);
  }
  if (in_place) {
    set_data(request, output, true);
    return request;
  }
  if (overlap(output, input)) {
    fail(Code::invalid_argument, "{}: input overlaps output without being it", kWhat);
  }
  set_input(request, input);
  set_data(request, output, false);
  return request;
}

Request Requests::all_reduce(const TensorView& tensor, MeanOf mean_of) const {
  if (mean_of.count < 1) {
    fail(Code::invalid_argument, "all_reduce: a mean of {}: must be at least 1", mean_of.count);
  }
  Request request = all_reduce(tensor, tensor, Reduce::mean);
  request.mean_of = mean_of.count;
  return request;
}

Request Requests::reduce(const TensorView& tensor, int root, Reduce reduce) const {
  check_output("reduce", tensor);
  check_root("reduce", root);
  check_reduction("reduce", tensor, reduce);
  Request request;
  request.operation = Operation::reduce;
  request.reduce = reduce;
  request.root = root;
  request.count = tensor.count;
  set_data(request, tensor, true);
  return request;
}

Request Requests::broadcast(const TensorView& tensor, int root) const {
  check_output("broadcast", tensor);
  check_root("broadcast", root);
  Request request;
  request.operation = Operation::broadcast;
  request.root = root;
  request.count = tensor.count;
  set_data(request, tensor, rank_ == root);
  return request;
}

Request Requests::all_gather(const TensorView& output, const TensorView& input,
                             std::span<const std::int64_t> counts) const {
  constexpr const char* kWhat = "all_gather";
  check_output(kWhat, output);
  check(kWhat, input);
  const std::int64_t all = whole(kWhat, counts, input.count);
  if (output.dtype != input.dtype || output.count != all || part(counts, all) != input.count) {
    fail(Code::invalid_argument, "{}: input {}[{}] on {} ranks{} needs output {}[{}], not {}[{}]",
         kWhat, to_string(input.dtype), input.count, size_,
         counts.empty() ? "" : fmt::format(" with {} by counts", part(counts, all)),
         to_string(input.dtype), all, to_string(output.dtype), output.count);
  }
  check_overlap(kWhat, output, before(counts, rank_, input.count), input);
  Request request;
  request.operation = Operation::all_gather;
  request.count = counts.empty() ? input.count : 0;
  request.counts = counts;
  set_input(request, input);
  set_data(request, output, false);
  return request;
}

Request Requests::reduce_scatter(const TensorView& output, const TensorView& input,
                                 std::span<const std::int64_t> counts, Reduce reduce) const {
  constexpr const char* kWhat = "reduce_scatter";
  check_output(kWhat, output);
  check(kWhat, input);
  check_types(kWhat, output, input);
  check_reduction(kWhat, output, reduce);
  const std::int64_t all = whole(kWhat, counts, output.count);
  if (input.count != all || part(counts, all) != output.count) {
    fail(
        Code::invalid_argument,
        "{}: output of {} elements on {} ranks{} needs input of {}, not {} (its first dimension is "
        "divided among the ranks)",
        kWhat, output.count, size_,
        counts.empty() ? "" : fmt::format(" with {} by counts", part(counts, all)), all,
        input.count);
  }
  check_overlap(kWhat, input, before(counts, rank_, output.count), output);
  Request request;
  request.operation = Operation::reduce_scatter;
  request.reduce = reduce;
  request.count = counts.empty() ? output.count : 0;
  request.counts = counts;
  set_input(request, input);
  set_data(request, output, false);
  return request;
}

Request Requests::gather(const TensorView& output, const TensorView& input,
                         std::span<const std::int64_t> counts, int root) const {
  constexpr const char* kWhat = "gather";
  check_root(kWhat, root);
  check(kWhat, input);
  const std::int64_t all = whole(kWhat, counts, input.count);
  if (part(counts, all) != input.count) {
    fail(Code::invalid_argument, "{}: input has {} elements, counts say {}", kWhat, input.count,
         part(counts, all));
  }
  Request request;
  request.operation = Operation::gather;
  request.root = root;
  request.count = counts.empty() ? input.count : 0;
  request.counts = counts;
  if (rank_ == root) {
    check_output(kWhat, output);
    check_types(kWhat, output, input);
    if (output.count != all) {
      fail(Code::invalid_argument, "{}: output has {} elements, all inputs together {}", kWhat,
           output.count, all);
    }
    check_overlap(kWhat, output, before(counts, rank_, input.count), input);
    set_data(request, output, false);
  }
  set_input(request, input);
  return request;
}

Request Requests::scatter(const TensorView& output, const TensorView& input,
                          std::span<const std::int64_t> counts, int root) const {
  constexpr const char* kWhat = "scatter";
  check_root(kWhat, root);
  check_output(kWhat, output);
  const std::int64_t all = whole(kWhat, counts, output.count);
  if (part(counts, all) != output.count) {
    fail(Code::invalid_argument, "{}: output has {} elements, counts say {}", kWhat, output.count,
         part(counts, all));
  }
  Request request;
  request.operation = Operation::scatter;
  request.root = root;
  request.count = counts.empty() ? output.count : 0;
  request.counts = counts;
  if (rank_ == root) {
    check(kWhat, input);
    check_types(kWhat, output, input);
    if (input.count != all) {
      fail(Code::invalid_argument, "{}: input has {} elements, all outputs together {}", kWhat,
           input.count, all);
    }
    check_overlap(kWhat, input, before(counts, rank_, output.count), output);
    set_input(request, input);
  }
  set_data(request, output, false);
  return request;
}

Request Requests::all_to_all(const TensorView& output, const TensorView& input,
                             std::span<const std::int64_t> receive_counts,
                             std::span<const std::int64_t> send_counts) const {
  constexpr const char* kWhat = "all_to_all";
  check_output(kWhat, output);
  check(kWhat, input);
  check_types(kWhat, output, input);
  if (receive_counts.empty() != send_counts.empty()) {
    fail(Code::invalid_argument, "{}: counts for one direction only", kWhat);
  }
  if (send_counts.empty() && (input.count != output.count || input.count % size_ != 0)) {
    fail(Code::invalid_argument,
         "{}: input of {} and output of {} elements cannot be divided among {} ranks", kWhat,
         input.count, output.count, size_);
  }
  const bool fits = send_counts.empty() || (whole(kWhat, send_counts, 0) == input.count &&
                                            whole(kWhat, receive_counts, 0) == output.count);
  if (!fits) {
    fail(Code::invalid_argument, "{}: counts of {} and {} do not fit input of {}, output of {}",
         kWhat, whole(kWhat, send_counts, 0), whole(kWhat, receive_counts, 0), input.count,
         output.count);
  }
  if (overlap(output, input)) fail(Code::invalid_argument, "{}: input overlaps output", kWhat);
  Request request;
  request.operation = Operation::all_to_all;
  request.count = send_counts.empty() ? input.count / size_ : 0;
  request.counts = send_counts;
  request.receive_counts = receive_counts;
  set_input(request, input);
  set_data(request, output, false);
  return request;
}

Request Requests::send(const TensorView& tensor, int to) const {
  check("send", tensor);
  check_peer("send", to);
  Request request;
  request.operation = Operation::send;
  request.root = rank_;
  request.peer = to;
  request.count = tensor.count;
  set_input(request, tensor);
  return request;
}

Request Requests::receive(const TensorView& tensor, int from) const {
  check_output("receive", tensor);
  check_peer("receive", from);
  Request request;
  request.operation = Operation::send;
  request.root = from;
  request.peer = from;
  request.count = tensor.count;
  set_data(request, tensor, false);
  return request;
}

}  // namespace lockstep
