// One rank of bench/ddp as a C++ program without DistributedDataParallel does it: Gloo, as PyTorch
// uses it (c10d::ProcessGroupGloo), called when backward() has returned. Kinds:
//   flat  all gradients copied into one tensor, reduced at once, copied back
//   each  every gradient by itself, all under way at the same time, as PyTorch's own example does
//         (pytorch/examples, cpp/distributed/dist-mnist.cpp)
// RANK, WORLD_SIZE and GLOO_STORE (a file that all ranks can reach) are set.
#include <torch/types.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/ddp_loop.h"

namespace {

using lockstep::bench::Averaging;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return value;
}

class Flat final : public Averaging {
 public:
  Flat(const torch::nn::Module& module, c10d::ProcessGroup& group)
      : parameters_(module.parameters()), group_(group) {
    std::int64_t elements = 0;
    for (const auto& parameter : parameters_) elements += parameter.numel();
    flat_ = {torch::empty({elements})};
  }

  void finish() override {
    for_each_part([](torch::Tensor part, torch::Tensor gradient) { part.copy_(gradient); });
    group_.allreduce(flat_)->wait();
    flat_[0].div_(group_.getSize());
    for_each_part([](torch::Tensor part, torch::Tensor gradient) { gradient.copy_(part); });
  }

  std::optional<double> exposed_ms() const override { return std::nullopt; }

 private:
  void for_each_part(void (*call)(torch::Tensor, torch::Tensor)) {
    std::int64_t at = 0;
    for (const auto& parameter : parameters_) {
      const auto& gradient = parameter.grad();
      call(flat_[0].narrow(0, at, gradient.numel()).view(gradient.sizes()), gradient);
      at += gradient.numel();
    }
  }

  const std::vector<torch::Tensor> parameters_;
  c10d::ProcessGroup& group_;
  std::vector<torch::Tensor> flat_;
};

class Each final : public Averaging {
 public:
  Each(const torch::nn::Module& module, c10d::ProcessGroup& group)
      : parameters_(module.parameters()), group_(group) {}

  void finish() override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const auto& parameter : parameters_) {
      std::vector<torch::Tensor> gradient{parameter.grad()};
      works.push_back(group_.allreduce(gradient));
    }
    for (const auto& work : works) work->wait();
    for (const auto& parameter : parameters_) parameter.grad().div_(group_.getSize());
  }

  std::optional<double> exposed_ms() const override { return std::nullopt; }

 private:
  const std::vector<torch::Tensor> parameters_;
  c10d::ProcessGroup& group_;
};

class Gloo final : public lockstep::bench::TrainingSystem {
 public:
  Gloo() {
    const int rank = std::stoi(variable("RANK")), size = std::stoi(variable("WORLD_SIZE"));
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
    auto store = c10::make_intrusive<c10d::FileStore>(variable("GLOO_STORE"), size);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  }

  std::string version() const override { return "LibTorch " TORCH_VERSION; }
  int rank() const override { return group_->getRank(); }
  void barrier() override { group_->barrier()->wait(); }

  // The seed has made equal parameters on all ranks.
  std::unique_ptr<Averaging> average(const std::string& kind,
                                     std::shared_ptr<torch::nn::Module> module) override {
    if (kind == "flat") return std::make_unique<Flat>(*module, *group_);
    if (kind == "each") return std::make_unique<Each>(*module, *group_);
    throw std::runtime_error("no kind '" + kind + "'");
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bench::train([] { return std::make_unique<Gloo>(); }, argc, argv);
}
