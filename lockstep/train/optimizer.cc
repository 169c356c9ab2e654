#include "lockstep/train/optimizer.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <tuple>

namespace lockstep::train {

namespace {

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_adam(const TrainSettings& s,
                                                   std::vector<torch::Tensor> parameters) {
  return std::make_unique<Optimizer>(std::move(parameters),
                                     Options(s.lr)
                                         .betas(std::make_tuple(s.beta1, s.beta2))
                                         .eps(s.epsilon)
                                         .weight_decay(s.weight_decay));
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& s,
                                                        std::vector<torch::Tensor> parameters) {
  namespace optim = torch::optim;
  if (s.optimizer == "adam") {
    return make_adam<optim::Adam, optim::AdamOptions>(s, std::move(parameters));
  }
  if (s.optimizer == "adamw") {
    return make_adam<optim::AdamW, optim::AdamWOptions>(s, std::move(parameters));
  }
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(s.lr)
                                                                 .momentum(s.momentum)
                                                                 .nesterov(s.nesterov)
                                                                 .weight_decay(s.weight_decay));
}

LearningRate learning_rate(const TrainSettings& s, std::int64_t total_steps) {
  LearningRateOptions options;
  options.rate = s.lr;
  if (s.lr_scaling != "none") {
    options.scaling = s.lr_scaling == "linear" ? RateScaling::linear : RateScaling::square_root;
  }
  options.base_batch = s.base_batch;
  options.batch = s.batch;
  options.warmup_steps = s.warmup_steps;
  if (s.lr_schedule == "cosine") options.decay_until = total_steps;
  return LearningRate(options);
}

}  // namespace lockstep::train
