// The optimizer that the settings name.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "lockstep/train/settings.h"

namespace lockstep::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings,
                                                        std::vector<torch::Tensor> parameters);

void set_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace lockstep::train
