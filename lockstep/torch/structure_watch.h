// StructureWatch: sees whether a module's parameters are still those that it had, and where its
// buffers stand. Cheap enough for every step: it compares addresses, and builds no names unless
// something has changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/torch/module_view.h"

namespace lockstep {

class StructureWatch {
 public:
  explicit StructureWatch(const ModuleView& module);

  // What has changed since, for a person ("parameter 'head.weight' was added"); empty: nothing. A
  // TorchScript module's list cannot change.
  std::optional<std::string> change();
  // The buffers as they are now: a module may have put others in their places. Those that were
  // registered when the watch was made.
  std::vector<at::Tensor> buffers() const;

 private:
  struct Node {
    std::shared_ptr<torch::nn::Module> keep;  // null for the root
    const torch::nn::Module* module;
    std::vector<const void*> parameters;
    std::vector<const void*> children;
    std::vector<std::string> buffers;  // by their names in this module
  };
  void take_stock();
  void add(const torch::nn::Module* module, std::shared_ptr<torch::nn::Module> keep,
           const std::string& prefix, const NamedTensors& buffers);

  const ModuleView view_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::string, const void*>> names_;
};

}  // namespace lockstep
