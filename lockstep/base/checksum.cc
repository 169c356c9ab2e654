#include "lockstep/base/checksum.h"

#include <xxhash.h>

namespace lockstep {

std::uint64_t checksum(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace lockstep
