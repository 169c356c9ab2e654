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
  std::int32_t root = 0;  // send: the sender
  std::int64_t count = 0;
  std::uint64_t place = 0;   // of shared data: the same for all ranks; 0 otherwise
  std::uint64_t detail = 0;  // a checksum of the counts per rank; 0: all are equal

  bool operator==(const Announcement&) const = default;

  // Two that differ have different ones, but for a chance of 2^-64. Not zero.
  std::uint64_t fingerprint() const {
    std::uint64_t hash = 0;
    const auto add = [&hash](std::uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    };
    add(sequence);
    add(static_cast<std::uint64_t>(operation) | static_cast<std::uint64_t>(algorithm) << 8 |
        static_cast<std::uint64_t>(dtype) << 16 | static_cast<std::uint64_t>(reduce) << 24 |
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32);
    add(static_cast<std::uint64_t>(count));
    add(place);
    add(detail);
    return hash | 1;
  }
};

}  // namespace lockstep
