// Drawing: the plans of all ranks as a picture (SVG) that one can learn the algorithm from: ranks
// down, time across, one colour per chunk, slice or part.
#pragma once

#include <string>

#include "lockstep/explain/case.h"
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/cost.h"

namespace lockstep {

// More are counted together in a row of their own; of more than kDrawnChunksMax chunks, the
// first are drawn. The picture says so.
inline constexpr int kDrawnRanksMax = 16;
inline constexpr int kDrawnChunksMax = 3;
inline constexpr int kFollowedRanksMax = 256;

// Throws Error(invalid_argument) for more than kFollowedRanksMax ranks, or too many moves.
std::string draw(const Case& of, const Algorithm& algorithm, const Prices& prices);

}  // namespace lockstep
