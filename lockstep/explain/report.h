// Report: what `lockstep plan` prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/explain/candidates.h"
#include "lockstep/explain/case.h"
#include "lockstep/explain/outlook.h"
#include "lockstep/explain/proof.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

// "all_reduce of 4 MiB (1,048,576 f32) among 8 ranks on 2 hosts".
std::string describe(const Case& of);
// "4 MiB", "1.5 KiB".
std::string binary_bytes(std::int64_t bytes);
// "12.0 µs", "3.40 ms".
std::string human_us(double us);

// The steps of a rank, one a line; at most about `lines_max` of them: first ones and last ones.
std::string steps_text(const Plan& plan, const Case& of, int rank, std::size_t lines_max);

std::string to_text(const Candidates& candidates);

// Minimum, median and maximum over ranks.
std::string totals_text(const Outlook& outlook, const Case& of);

// All of it for programs; `proof` null: not checked.
std::string to_json(const Case& of, const Algorithm& algorithm, const Plan& plan, int rank,
                    const Outlook& outlook, const Proof* proof, const Candidates& candidates);

}  // namespace lockstep
