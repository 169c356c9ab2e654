// Provenance: which part of the tensor the bytes of a message or a reduction are, and whose
// contributions they hold. Wherever they are staged meanwhile, found by following a simulation.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/explain/case.h"
#include "lockstep/explain/simulate.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

struct Origin {
  std::int64_t begin = 0;   // element of the tensor; of all parts, where it has parts
  std::uint64_t ranks = 0;  // bit r: rank r's contribution is in it (of ranks below 64)
  bool operator==(const Origin&) const = default;
};

struct Provenance {
  std::vector<Origin> flights;     // of each message
  std::vector<Origin> activities;  // of what each copy or reduction writes
};

// `simulation` is a traced one of `plans`, the plans of all ranks.
Provenance follow(const Case& of, const std::vector<Plan>& plans, const Simulation& simulation);

}  // namespace lockstep
