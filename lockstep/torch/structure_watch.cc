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

}  // namespace

StructureWatch::StructureWatch(const ModuleView& module) : view_(module), names_(names_of(module)) {
  take_stock();
}

void StructureWatch::take_stock() {
  nodes_.clear();
  if (view_.module() != nullptr) add(view_.module(), nullptr);
}

void StructureWatch::add(const torch::nn::Module* module, std::shared_ptr<torch::nn::Module> keep) {
  Node node{std::move(keep), module, {}, {}};
  for (const at::Tensor& parameter : module->parameters(false)) {
    node.parameters.push_back(parameter.unsafeGetTensorImpl());
  }
  const auto children = module->children();
  for (const auto& child : children) node.children.push_back(child.get());
  nodes_.push_back(std::move(node));
  for (const auto& child : children) add(child.get(), child);
}

std::optional<std::string> StructureWatch::change() {
  const auto same = [](const Node& node) {
    std::size_t i = 0;
    for (const at::Tensor& parameter : node.module->parameters(false)) {
      if (i == node.parameters.size() || parameter.unsafeGetTensorImpl() != node.parameters[i]) {
        return false;
      }
      ++i;
    }
    if (i != node.parameters.size()) return false;
    i = 0;
    for (const auto& child : node.module->children()) {
      if (i == node.children.size() || child.get() != node.children[i]) return false;
      ++i;
    }
    return i == node.children.size();
  };
  if (std::all_of(nodes_.begin(), nodes_.end(), same)) return {};
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

}  // namespace lockstep
