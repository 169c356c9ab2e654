// Requests: what a caller asks for, checked against the group. Everything that is wrong on this
// rank alone is found here, before anything moves.
//
// Thread rule: pure functions.
#pragma once

#include <span>

#include "lockstep/base/types.h"
#include "lockstep/engine/execution.h"

namespace lockstep {

// Throws Error(invalid_argument) naming the operation and what does not fit: a tensor without
// memory, a root or peer that is no rank, counts that do not add up, types that differ, tensors
// that overlap, a reduction that the type does not have.
class Requests {
 public:
  Requests(int rank, int size) : rank_(rank), size_(size) {}

  Request all_reduce(const TensorView& output, const TensorView& input, Reduce reduce) const;
  // Error(invalid_argument) too for a divisor below 1.
  Request all_reduce(const TensorView& tensor, MeanOf mean_of) const;
  Request reduce(const TensorView& tensor, int root, Reduce reduce) const;
  Request broadcast(const TensorView& tensor, int root) const;
  // `counts` empty: parts of one size. The whole tensor may be left out where it is not used.
  Request all_gather(const TensorView& output, const TensorView& input,
                     std::span<const std::int64_t> counts) const;
  Request reduce_scatter(const TensorView& output, const TensorView& input,
                         std::span<const std::int64_t> counts, Reduce reduce) const;
  Request gather(const TensorView& output, const TensorView& input,
                 std::span<const std::int64_t> counts, int root) const;
  Request scatter(const TensorView& output, const TensorView& input,
                  std::span<const std::int64_t> counts, int root) const;
  Request all_to_all(const TensorView& output, const TensorView& input,
                     std::span<const std::int64_t> receive_counts,
                     std::span<const std::int64_t> send_counts) const;
  Request send(const TensorView& tensor, int to) const;
  Request receive(const TensorView& tensor, int from) const;
  Request barrier() const { return {}; }

 private:
  void check_root(const char* what, int root) const;
  void check_peer(const char* what, int peer) const;
  std::int64_t whole(const char* what, std::span<const std::int64_t> counts,
                     std::int64_t part) const;
  std::int64_t part(std::span<const std::int64_t> counts, std::int64_t whole) const;

  const int rank_;
  const int size_;
};

}  // namespace lockstep
