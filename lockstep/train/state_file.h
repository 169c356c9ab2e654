// A module's state_dict as the file that Python's torch.load(path, weights_only=True) opens: a zip
// archive with a pickled dict from name to tensor.
#pragma once

#include <torch/nn/module.h>

#include <string>

namespace lockstep::train {

// Parameters, then buffers, by name; each row-major, whatever its order in memory. The bytes of the
// file: writing them whole is up to the caller.
std::string state_file(const torch::nn::Module& module);

}  // namespace lockstep::train
