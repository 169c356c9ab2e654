// The optimizer and the learning rate that the settings name.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "lockstep/torch/learning_rate.h"
#include "lockstep/train/settings.h"

namespace lockstep::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings,
                                                        std::vector<torch::Tensor> parameters);

LearningRate learning_rate(const TrainSettings& settings, std::int64_t total_steps);

}  // namespace lockstep::train
