// Proof of the plans of a case by the checker (plan/checker.h), or of a stand-in's, where the case
// is too large for a proof on symbols.
#pragma once

#include <optional>
#include <string>

#include "lockstep/explain/case.h"

namespace lockstep {

struct Proof {
  std::optional<std::string> problem;  // the first thing that is wrong
  std::string what;                    // was checked: of how many ranks, elements, chunks
  std::string left_out;                // empty: nothing
};

// Takes seconds at most, and up to a GB.
Proof prove(const Case& of, const Algorithm& algorithm);

}  // namespace lockstep
