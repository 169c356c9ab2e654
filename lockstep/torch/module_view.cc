#include "lockstep/torch/module_view.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

template <class Dict>
NamedTensors list(const Dict& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

template <class List>
NamedTensors script_list(const List& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.emplace_back(item.name, item.value);
  return result;
}

}  // namespace

ModuleView::ModuleView(std::shared_ptr<torch::nn::Module> module) : module_(module.get()) {
  if (module == nullptr) fail(Code::invalid_argument, "the module is null");
  parameters_ = [module] { return list(module->named_parameters()); };
  buffers_ = [module] { return list(module->named_buffers()); };
}

ModuleView::ModuleView(const torch::nn::Module& module)
    : parameters_([&module] { return list(module.named_parameters()); }),
      buffers_([&module] { return list(module.named_buffers()); }),
      module_(&module) {}

ModuleView::ModuleView(const torch::jit::Module& module)
    : parameters_([module] { return script_list(module.named_parameters()); }),
      buffers_([module] { return script_list(module.named_buffers()); }) {}

ModuleView ModuleView::without(const std::vector<std::string>& names) const {
  if (names.empty()) return *this;
  const auto is_in = [](const std::string& tensor, const std::string& name) {
    return tensor == name || tensor.starts_with(name + ".");
  };
  const auto all = {parameters(), buffers()};
  for (const std::string& name : names) {
    bool known = false;
    for (const auto& tensors : all) {
      for (const auto& [tensor, value] : tensors) known = known || is_in(tensor, name);
    }
    if (known) continue;
    fail(Code::invalid_argument, "'{}' is to be left out, but the module has no such thing", name);
  }
  const auto filtered = [names, is_in](const std::function<NamedTensors()>& list) {
    return [names, is_in, list] {
      NamedTensors tensors = list();
      std::erase_if(tensors, [&](const auto& item) {
        return std::any_of(names.begin(), names.end(),
                           [&](const std::string& name) { return is_in(item.first, name); });
      });
      return tensors;
    };
  };
  ModuleView view = *this;
  view.parameters_ = filtered(parameters_);
  view.buffers_ = filtered(buffers_);
  return view;
}

}  // namespace lockstep
