// Making the replicas of a module equal, and seeing whether they are.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "lockstep/group/group.h"

namespace lockstep {

// Collective. Throws Error(invalid_argument), on every rank, with the first parameter or buffer
// that differs in name, shape, strides, type or requires_grad, as each side has it.
void check_same_module(const torch::nn::Module& module, Group& group);

// Collective. Every parameter and buffer becomes rank 0's, to the bit.
void broadcast_module(torch::nn::Module& module, Group& group);

// Checksum of all parameters in registration order (64 bits of XXH3): equal exactly when replicas
// are bit-identical, for all practical purposes. `buffers` counts buffers in.
std::uint64_t parameter_checksum(const torch::nn::Module& module, bool buffers = false);

}  // namespace lockstep
