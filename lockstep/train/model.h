// The models that can be trained by name. Parameter and buffer names are those that the same model
// written in Python has in its state_dict.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/train/settings.h"

namespace lockstep::train {

class Model : public torch::nn::Module {
 public:
  // Images, samples × channels × height × width of f32, or tokens, samples × length of i64, in;
  // one row of f32 logits for each target out.
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};

// What the data asks of a model; all 0 for text.
struct InputShape {
  int channels = 0;
  int height = 0;
  int width = 0;
  int classes = 0;
};

// Throws Error(invalid_argument) if the model cannot take such inputs. Initialized from LibTorch's
// generator: seed it before, to get the same parameters again.
std::shared_ptr<Model> make_model(const TrainSettings& settings, const InputShape& input);

// model.cc, resnet.cc, gpt.cc.
std::shared_ptr<Model> make_mlp(const TrainSettings& settings, const InputShape& input);
std::shared_ptr<Model> make_cnn(const TrainSettings& settings, const InputShape& input);
std::shared_ptr<Model> make_resnet18(const TrainSettings& settings, const InputShape& input);
std::shared_ptr<Model> make_gpt(const TrainSettings& settings, const InputShape& input);

}  // namespace lockstep::train
