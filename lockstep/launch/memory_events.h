// Whether the kernel's out-of-memory killer has been at work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lockstep {

// How many processes the kernel has killed for want of memory in this process's control groups or,
// where groups do not count that, on this host. Two readings that differ mean: since the first one.
// Empty: it cannot be read. `root` is where proc and the mount points are looked up.
std::optional<std::int64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace lockstep
