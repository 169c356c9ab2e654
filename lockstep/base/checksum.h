// 64-bit XXH3 checksums (https://xxhash.com), for equality of replicas and of stored bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Checksum of `bytes` bytes at `data`, continued from `seed`: chain calls to cover several pieces.
std::uint64_t checksum(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace lockstep
