// ResNet-18 in the form for small images: a 3 × 3 stem without pooling (He et al., "Deep Residual
// Learning for Image Recognition", CVPR 2016), named as torchvision's.
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/train/model.h"

namespace lockstep::train {

namespace {

namespace nn = torch::nn;

nn::Conv2d make_conv(int in, int out, int side, int stride, bool bias) {
  nn::Conv2d conv(nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).bias(bias));
  nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  return conv;
}

nn::AnyModule make_norm(const std::string& kind, int channels) {
  if (kind == "batch") return nn::AnyModule(nn::BatchNorm2d(channels));
  return nn::AnyModule(nn::GroupNorm(nn::GroupNormOptions(32, channels)));
}

// The norm, if there is one, registered with `owner`.
nn::AnyModule add_norm(nn::Module& owner, const char* name, const std::string& kind, int channels) {
  if (kind == "none") return {};
  nn::AnyModule norm = make_norm(kind, channels);
  owner.register_module(name, norm.ptr());
  return norm;
}

torch::Tensor normalized(nn::AnyModule& norm, const torch::Tensor& x) {
  return norm.is_empty() ? x : norm.forward<torch::Tensor>(x);
}

class BlockImpl final : public nn::Module {
 public:
  BlockImpl(int in, int out, int stride, const std::string& norm)
      : conv1_(register_module("conv1", make_conv(in, out, 3, stride, norm == "none"))),
        bn1_(add_norm(*this, "bn1", norm, out)),
        conv2_(register_module("conv2", make_conv(out, out, 3, 1, norm == "none"))),
        bn2_(add_norm(*this, "bn2", norm, out)) {
    // Without a norm the sums of the blocks would grow from layer to layer: each block starts as
    // the identity instead (Zhang et al., "Fixup Initialization", ICLR 2019).
    if (norm == "none") nn::init::zeros_(conv2_->weight);
    if (in == out && stride == 1) return;
    downsample_ = nn::Sequential(make_conv(in, out, 1, stride, norm == "none"));
    if (norm != "none") downsample_->push_back(make_norm(norm, out));
    register_module("downsample", downsample_);
  }

  torch::Tensor forward(torch::Tensor input) {
    auto x = torch::relu(normalized(bn1_, conv1_(input)));
    x = normalized(bn2_, conv2_(x));
    return torch::relu(x + (downsample_.is_empty() ? input : downsample_->forward(input)));
  }

 private:
  nn::Conv2d conv1_;
  nn::AnyModule bn1_;
  nn::Conv2d conv2_;
  nn::AnyModule bn2_;
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Block);

class ResNet18 final : public Model {
 public:
  ResNet18(const InputShape& input, const std::string& norm)
      : conv1_(register_module("conv1", make_conv(input.channels, 64, 3, 1, norm == "none"))),
        bn1_(add_norm(*this, "bn1", norm, 64)) {
    constexpr int kWidths[] = {64, 128, 256, 512};
    int in = 64;
    for (int i = 0; i < 4; ++i) {
      const int out = kWidths[i];
      nn::Sequential layer(Block(in, out, i == 0 ? 1 : 2, norm), Block(out, out, 1, norm));
      layers_.push_back(register_module("layer" + std::to_string(i + 1), layer));
      in = out;
    }
    fc_ = register_module("fc", nn::Linear(in, input.classes));
  }

  torch::Tensor forward(torch::Tensor input) override {
    auto x = torch::relu(normalized(bn1_, conv1_(input)));
    for (nn::Sequential& layer : layers_) x = layer->forward(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  nn::Conv2d conv1_;
  nn::AnyModule bn1_;
  std::vector<nn::Sequential> layers_;
  nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_resnet18(const TrainSettings& settings, const InputShape& input) {
  return std::make_shared<ResNet18>(input, settings.norm);
}

}  // namespace lockstep::train
