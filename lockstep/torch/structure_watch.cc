#include "lockstep/torch/structure_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

namespace {

std::vector<std::pair<std::string, const void*>> names_of(const ModuleView& view) {
  std::vector<std::pair<std::string, const void*>> names;
  for (const auto& [name, tensor] : view.parameters()) {
    names.emplace_back(name, tensor.unsafeGetTensorImpl());
  }
  return names;
}

// A module's own parameters without the copy of names and tensors that its public functions make,
// which would be most of what a small step costs.
struct Own : torch::nn::Module {
  static const auto& parameters_of(const torch::nn::Module& module) {
    return module.*(&Own::parameters_);
  }
};

template <class List, class Address>
bool same(const std::vector<const void*>& were, const List& are, const Address& address) {
  if (were.size() != are.size()) return false;
  return std::equal(were.begin(), were.end(), are.begin(),
                    [&](const void* was, const auto& is) { return was == address(is); });
}

constexpr auto parameter_address = [](const auto& item) {
  return static_cast<const void*>(item.value().unsafeGetTensorImpl());
};
constexpr auto module_address = [](const auto& child) {
  return static_cast<const void*>(child.get());
};

}  // namespace

StructureWatch::StructureWatch(const ModuleView& module) : view_(module), names_(names_of(module)) {
  take_stock();
}

void StructureWatch::take_stock() {
  nodes_.clear();
  if (view_.module() != nullptr) add(view_.module(), nullptr, "", view_.buffers());
}

void StructureWatch::add(const torch::nn::Module* module, std::shared_ptr<torch::nn::Module> keep,
                         const std::string& prefix, const NamedTensors& buffers) {
  Node node{std::move(keep), module, {}, {}, {}};
  for (const auto& item : Own::parameters_of(*module)) {
    node.parameters.push_back(parameter_address(item));
  }
  for (const auto& item : module->named_buffers(false)) {
    const std::string name = prefix + item.key();
    const bool wanted = std::any_of(buffers.begin(), buffers.end(),
                                    [&](const auto& buffer) { return buffer.first == name; });
    if (wanted) node.buffers.push_back(item.key());
  }
  const auto children = module->named_children();
  for (const auto& child : children) node.children.push_back(child.value().get());
  nodes_.push_back(std::move(node));
  for (const auto& child : children) {
    add(child.value().get(), child.value(), prefix + child.key() + ".", buffers);
  }
}

std::optional<std::string> StructureWatch::change() {
  const auto unchanged = [](const Node& node) {
    return same(node.parameters, Own::parameters_of(*node.module), parameter_address) &&
           same(node.children, node.module->children(), module_address);
  };
  if (std::all_of(nodes_.begin(), nodes_.end(), unchanged)) return {};
  const auto now = names_of(view_);
  const auto holds = [](const auto& names, const std::string& name) {
    return std::any_of(names.begin(), names.end(),
                       [&](const auto& item) { return item.first == name; });
  };
  for (const auto& [name, tensor] : now) {
    if (!holds(names_, name)) return fmt::format("parameter '{}' was added", name);
  }
  for (const auto& [name, tensor] : names_) {
    if (!holds(now, name)) return fmt::format("parameter '{}' was removed", name);
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != names_[i]) {
      return fmt::format("parameter '{}' is another tensor now", now[i].first);
    }
  }
  take_stock();  // a module without parameters has come or gone, or what is left out has changed
  return {};
}

std::vector<at::Tensor> StructureWatch::buffers() const {
  std::vector<at::Tensor> buffers;
  if (view_.module() == nullptr) {
    for (const auto& [name, tensor] : view_.buffers()) buffers.push_back(tensor);
  }
  for (const Node& node : nodes_) {
    if (node.buffers.empty()) continue;
    const auto all = node.module->named_buffers(false);
    for (const std::string& name : node.buffers) buffers.push_back(all[name]);
  }
  return buffers;
}

}  // namespace lockstep
