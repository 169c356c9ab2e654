// What a rank says about the operation it is in, so that peers can see whether they are in the
// same.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/types.h"

namespace lockstep {

struct Announcement {
  std::uint64_t sequence = 0;  // operations of the group before this one
  std::uint8_t operation = 0;  // plan/plan.h: Operation
  std::uint8_t needs = 0;      // plan/plan.h: Needs
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  std::int32_t root = 0;
  std::int64_t count = 0;
  std::uint64_t place = 0;  // of shared data: the same for all ranks; 0 otherwise

  bool operator==(const Announcement&) const = default;
};

}  // namespace lockstep
