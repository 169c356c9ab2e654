// StructureWatch: sees whether a module's parameters are still those that it had. Cheap enough for
// every step: it compares addresses, and builds no names unless something has changed.
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

 private:
  struct Node {
    std::shared_ptr<torch::nn::Module> keep;  // null for the root
    const torch::nn::Module* module;
    std::vector<const void*> parameters;
    std::vector<const void*> children;
  };
  void add(const torch::nn::Module* module, std::shared_ptr<torch::nn::Module> keep);

  void take_stock();

  const ModuleView view_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::string, const void*>> names_;
};

}  // namespace lockstep
