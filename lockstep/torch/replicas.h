// Making the replicas of a module equal, and seeing whether they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/torch/module_view.h"

namespace lockstep {

// Collective. Throws Error(invalid_argument), on every rank, with the first parameter or buffer
// that differs in name, shape, strides, type or requires_grad, as each side has it.
void check_same_module(const ModuleView& module, Group& group);

// Collective. Every parameter and buffer becomes `root`'s, to the bit; each keeps its own layout.
void broadcast_module(const ModuleView& module, Group& group, int root = 0);
void broadcast_tensors(const std::vector<at::Tensor>& tensors, Group& group, int root = 0);

// Checksum of all parameters in registration order (64 bits of XXH3): equal exactly when replicas
// are bit-identical, for all practical purposes. `buffers` counts buffers in.
std::uint64_t parameter_checksum(const ModuleView& module, bool buffers = false);

// Collective. Throws Error(corrupt), on every rank, when the parameters are not bit-identical on
// all ranks: names the first that is not, and the first rank on which it differs from rank 0's.
// `when`, for the message: "after step 300". Reads every parameter once.
void check_replicas(const ModuleView& module, Group& group, const std::string& when);

}  // namespace lockstep
