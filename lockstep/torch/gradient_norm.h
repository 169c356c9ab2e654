// The norm of all gradients together, and clipping by it (Pascanu et al., "On the difficulty of
// training recurrent neural networks", ICML 2013).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

// Collective. The 2-norm of the gradients of `parameters` as one vector, in f64; undefined
// gradients count as zero. For gradients that are the same on all ranks: each rank adds up a part
// of them, so that the work is done once, not once per rank, and every rank gets the same bits, on
// any number of ranks. Infinite or NaN if a gradient is.
double gradient_norm(const std::vector<at::Tensor>& parameters, Group& group);

// Collective. Scales the gradients down, in place, to a norm of `norm_max` if theirs is larger, and
// returns what it was. A norm that is not finite leaves them alone: the caller skips the step, as
// all ranks do. Throws Error(invalid_argument) for a norm_max that is not positive.
double clip_gradients(const std::vector<at::Tensor>& parameters, double norm_max, Group& group);

}  // namespace lockstep
