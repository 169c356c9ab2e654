// ModuleView: a model as its named parameters and buffers, whatever kind of module it is.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// A value; keeps the module alive (except where made of a reference).
class ModuleView {
 public:
  ModuleView(std::shared_ptr<torch::nn::Module> module);  // NOLINT: modules are meant to convert
  template <class Module>
  requires std::is_base_of_v<torch::nn::Module, Module> ModuleView(
      std::shared_ptr<Module> module)  // NOLINT
      : ModuleView(std::shared_ptr<torch::nn::Module>(std::move(module))) {}
  template <class Contained>
  ModuleView(const torch::nn::ModuleHolder<Contained>& module)  // NOLINT
      : ModuleView(std::shared_ptr<torch::nn::Module>(module.ptr())) {}
  // The module must outlive the view.
  ModuleView(const torch::nn::Module& module);  // NOLINT
  // A TorchScript module, as torch::jit::load gives it.
  ModuleView(const torch::jit::Module& module);  // NOLINT

  // In the order of registration, a module's own before its children's. Tensors that are registered
  // under several names come under each.
  NamedTensors parameters() const { return parameters_(); }
  NamedTensors buffers() const { return buffers_(); }
  // The same without what is called one of `names` or stands in a module that is. Throws
  // Error(invalid_argument) for a name that nothing has.
  ModuleView without(const std::vector<std::string>& names) const;
  // Null for a TorchScript module.
  const torch::nn::Module* module() const { return module_; }

 private:
  std::function<NamedTensors()> parameters_;
  std::function<NamedTensors()> buffers_;
  const torch::nn::Module* module_ = nullptr;
};

}  // namespace lockstep
