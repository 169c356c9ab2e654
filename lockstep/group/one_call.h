// For tests: one call of a group, of any operation, made by every rank and checked by every rank.
#pragma once

#include <string>
#include <vector>

#include "lockstep/group/expected_results.h"
#include "lockstep/group/group.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep::test {

// The same on every rank.
struct Call {
  Operation operation = Operation::all_reduce;
  const Algorithm* algorithm = nullptr;  // that the group is told to use; for messages only
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  Values values = Values::random;
  int root = 0;
  std::int64_t count = 0;  // of the tensor, or of one part
  bool uneven = false;     // where there are parts: they have 0, count, count + 1 … elements
  bool in_place = false;
  bool asynchronous = false;
  std::int64_t misaligned = 0;  // elements between a multiple of 64 bytes and the tensors
  std::uint64_t seed = 0;

  std::string text(int ranks) const;
};

bool has_parts(Operation operation);
bool reduces(Operation operation);

// What the plan is made for, on rank `rank`. `counts` and `receive_counts` hold what it refers to.
Shape shape_of(const Call& call, int rank, int ranks, std::vector<std::int64_t>& counts,
               std::vector<std::int64_t>& receive_counts);

// Bytes of memory that the tensors of such a call need, with their sentinels.
std::size_t bytes_needed(const Call& call, int ranks);

// Makes the call with tensors in `memory` (64-byte aligned), and compares to the bit: results,
// untouched inputs, untouched bytes before and behind them. What is wrong; empty: nothing.
std::string make_call(Group& group, std::byte* memory, const Call& call);

}  // namespace lockstep::test
