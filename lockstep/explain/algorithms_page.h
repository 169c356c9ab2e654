// The page docs/algorithms.md: every algorithm in a table, and what is chosen when. Made from the
// plans themselves.
#pragma once

#include <string>

namespace lockstep {

std::string algorithms_page();

}  // namespace lockstep
