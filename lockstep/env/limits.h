// Limits that the system sets for this process.
#pragma once

#include <cstddef>

namespace lockstep {

// Sees to it that this process may have `files_wanted` open files, raising its soft limit where it
// is lower. Throws Error(io) with both numbers when the hard limit forbids it.
void require_open_files(std::size_t files_wanted);

}  // namespace lockstep
