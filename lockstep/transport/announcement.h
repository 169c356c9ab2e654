// What a rank says about the operation it is in, so that peers can see whether they are in the
// same.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/types.h"

namespace lockstep {

struct Announcement {
  std::uint64_t sequence = 0;  // operations of the group before this one; send: of this pair
  std::uint8_t operation = 0;  // plan/plan.h: Operation
  std::uint8_t algorithm = 0;  // its place in plan/algorithms.h: algorithms()
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  std::int32_t root = 0;       // send: the sender
  std::int64_t count = 0;
  std::uint64_t place = 0;   // of shared data: the same for all ranks; 0 otherwise
  std::uint64_t detail = 0;  // a checksum of the counts per rank; 0: all are equal

  bool operator==(const Announcement&) const = default;
};

}  // namespace lockstep
