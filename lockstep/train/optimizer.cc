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

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace lockstep::train
