#include "lockstep/train/model.h"

#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "lockstep/base/error.h"

namespace lockstep::train {

namespace {

namespace nn = torch::nn;

class Mlp final : public Model {
 public:
  explicit Mlp(const InputShape& input)
      : fc1_(register_module("fc1",
                             nn::Linear(input.channels * input.height * input.width, kWidth))),
        fc2_(register_module("fc2", nn::Linear(kWidth, kWidth))),
        fc3_(register_module("fc3", nn::Linear(kWidth, input.classes))) {}

  torch::Tensor forward(torch::Tensor input) override {
    // Row-major order whatever the memory order, so that parameters mean the same everywhere.
    const auto hidden = torch::relu(fc1_(input.contiguous().flatten(1)));
    return fc3_(torch::relu(fc2_(hidden)));
  }

 private:
  static constexpr int kWidth = 1024;
  nn::Linear fc1_, fc2_, fc3_;
};

class Cnn final : public Model {
 public:
  Cnn(const InputShape& input, double dropout)
      : dropout_(dropout),
        conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(input.channels, 32, 3)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)))),
        fc1_(register_module(
            "fc1", nn::Linear(64 * ((input.height - 4) / 2) * ((input.width - 4) / 2), 128))),
        fc2_(register_module("fc2", nn::Linear(128, input.classes))) {}

  torch::Tensor forward(torch::Tensor input) override {
    auto x = torch::relu(conv1_(input));
    // The maximum first: the same values as the other way round, for a quarter of the work.
    x = torch::relu(torch::max_pool2d(conv2_(x), 2));
    x = drop(x, dropout_ / 2);
    x = torch::relu(fc1_(x.contiguous().flatten(1)));
    return fc2_(drop(x, dropout_));
  }

 private:
  torch::Tensor drop(const torch::Tensor& x, double share) const {
    return share > 0 ? torch::dropout(x, share, is_training()) : x;
  }

  double dropout_;
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_;
};

struct Row {
  const char* name;
  std::shared_ptr<Model> (*make)(const TrainSettings&, const InputShape&);
  int side_min;  // pixels
};

constexpr Row kModels[] = {
    {"mlp", make_mlp, 1},
    {"cnn", make_cnn, 6},
    {"resnet18", make_resnet18, 8},
    {"gpt", make_gpt, 0},
};

}  // namespace

std::shared_ptr<Model> make_mlp(const TrainSettings&, const InputShape& input) {
  return std::make_shared<Mlp>(input);
}

std::shared_ptr<Model> make_cnn(const TrainSettings& settings, const InputShape& input) {
  return std::make_shared<Cnn>(input, settings.dropout);
}

std::shared_ptr<Model> make_model(const TrainSettings& settings, const InputShape& input) {
  for (const Row& row : kModels) {
    if (settings.model != row.name) continue;
    if (input.height < row.side_min || input.width < row.side_min) {
      fail(Code::invalid_argument, "model = {} needs images of at least {} × {}, found {} × {}",
           row.name, row.side_min, row.side_min, input.height, input.width);
    }
    return row.make(settings, input);
  }
  fail(Code::invalid_argument, "unknown model '{}'", settings.model);
}

}  // namespace lockstep::train
