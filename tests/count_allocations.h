// Counts what a program allocates: linking count_allocations.cc replaces operator new and delete.
#pragma once

#include <cstdint>

namespace lockstep {

// Allocations of all threads so far.
std::int64_t allocations();

}  // namespace lockstep
