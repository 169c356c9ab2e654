// A small decoder-only transformer (Radford et al., "Language Models are Unsupervised Multitask
// Learners", 2019): norm before each block, learned positions, GELU.
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cmath>
#include <limits>

#include "lockstep/train/model.h"

namespace lockstep::train {

namespace {

namespace nn = torch::nn;

nn::LayerNorm make_norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

class AttentionImpl final : public nn::Module {
 public:
  AttentionImpl(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        qkv_(register_module("qkv", nn::Linear(width, 3 * width))),
        out_(register_module("out", nn::Linear(width, width))) {}

  // `mask`: length × length, 0 where a token may look and -inf where not.
  torch::Tensor forward(torch::Tensor input, torch::Tensor mask) {
    const auto samples = input.size(0), length = input.size(1), width = input.size(2);
    const auto parts =
        qkv_(input).view({samples, length, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const auto query = parts[0], key = parts[1], value = parts[2];
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    const auto weights =
        torch::softmax(torch::matmul(query * scale, key.transpose(2, 3)) + mask, -1);
    return out_(torch::matmul(weights, value).transpose(1, 2).reshape({samples, length, width}));
  }

 private:
  std::int64_t heads_;
  nn::Linear qkv_, out_;
};
TORCH_MODULE(Attention);

class BlockImpl final : public nn::Module {
 public:
  BlockImpl(std::int64_t width, std::int64_t heads, double dropout)
      : dropout_(dropout),
        norm1_(register_module("norm1", make_norm(width))),
        attention_(register_module("attention", Attention(width, heads))),
        norm2_(register_module("norm2", make_norm(width))),
        fc1_(register_module("fc1", nn::Linear(width, 4 * width))),
        fc2_(register_module("fc2", nn::Linear(4 * width, width))) {}

  torch::Tensor forward(torch::Tensor x, torch::Tensor mask) {
    x = x + drop(attention_(norm1_(x), mask));
    return x + drop(fc2_(torch::gelu(fc1_(norm2_(x)))));
  }

 private:
  torch::Tensor drop(const torch::Tensor& x) const {
    return dropout_ > 0 ? torch::dropout(x, dropout_, is_training()) : x;
  }

  double dropout_;
  nn::LayerNorm norm1_;
  Attention attention_;
  nn::LayerNorm norm2_;
  nn::Linear fc1_, fc2_;
};
TORCH_MODULE(Block);

class Gpt final : public Model {
 public:
  explicit Gpt(const TrainSettings& s)
      : tokens_(register_module("tokens", nn::Embedding(s.vocabulary, s.width))),
        positions_(register_module("positions", nn::Embedding(s.length, s.width))) {
    nn::ModuleList blocks;
    for (std::int64_t i = 0; i < s.layers; ++i) {
      blocks_.emplace_back(s.width, s.heads, s.dropout);
      blocks->push_back(blocks_.back());
    }
    register_module("blocks", blocks);
    norm_ = register_module("norm", make_norm(s.width));
    head_ =
        register_module("head", nn::Linear(nn::LinearOptions(s.width, s.vocabulary).bias(false)));
    initialize();
    mask_ = torch::full({s.length, s.length}, -std::numeric_limits<float>::infinity()).triu(1);
  }

  torch::Tensor forward(torch::Tensor input) override {
    const auto length = input.size(1);
    auto x = tokens_(input) + positions_->weight.slice(0, 0, length);
    const auto mask = mask_.slice(0, 0, length).slice(1, 0, length);
    for (Block& block : blocks_) x = block(x, mask);
    return head_(norm_(x)).flatten(0, 1);
  }

 private:
  void initialize() {
    torch::NoGradGuard no_grad;
    for (const auto& entry : named_parameters()) {
      if (entry.value().dim() > 1) {
        entry.value().normal_(0, 0.02);
      } else if (entry.key().find("norm") == std::string::npos) {
        entry.value().zero_();
      }
    }
  }

  nn::Embedding tokens_, positions_;
  std::vector<Block> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
  torch::Tensor mask_;
};

}  // namespace

std::shared_ptr<Model> make_gpt(const TrainSettings& settings, const InputShape&) {
  return std::make_shared<Gpt>(settings);
}

}  // namespace lockstep::train
