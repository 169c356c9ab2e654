#include "lockstep/torch/parameter_set.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

// Tensors whose gradients are known to be sparse.
std::set<const void*> sparse_weights(const ModuleView& module) {
  std::set<const void*> weights;
  if (module.module() == nullptr) return weights;
  const auto look = [&](const torch::nn::Module& at) {
    if (const auto* embedding = at.as<torch::nn::EmbeddingImpl>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    }
    if (const auto* bag = at.as<torch::nn::EmbeddingBagImpl>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  };
  look(*module.module());
  for (const auto& child : module.module()->modules(false)) look(*child);
  return weights;
}

}  // namespace

ParameterSet::ParameterSet(const ModuleView& module, const std::vector<std::string>& sparse) {
  const auto known_sparse = sparse_weights(module);
  std::set<std::string> names(sparse.begin(), sparse.end());
  std::set<const void*> seen;
  std::size_t slots = 0;
  for (const auto& [name, tensor] : module.parameters()) {
    const bool declared = names.erase(name) > 0;
    if (!tensor.requires_grad()) {
      frozen_.emplace_back(name, tensor);
      continue;
    }
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    try {
      TensorView view(tensor);
    } catch (const Error& error) {
      fail(error.code(), "parameter '{}': {}", name, error.what());
    }
    Parameter parameter;
    parameter.name = name;
    parameter.tensor = tensor;
    parameter.sparse = declared || known_sparse.count(tensor.unsafeGetTensorImpl()) > 0;
    if (!parameter.sparse) parameter.slot = slots++;
    parameters_.push_back(std::move(parameter));
  }
  if (!names.empty()) {
    fail(Code::invalid_argument, "'{}' is declared sparse, but the module has no such parameter",
         *names.begin());
  }
  if (parameters_.empty()) {
    fail(Code::invalid_argument,
         "the module has no parameter that needs a gradient: there is nothing to keep the same; "
         "use it without DistributedDataParallel");
  }
}

std::vector<Gradient> ParameterSet::gradients() const {
  std::vector<Gradient> gradients;
  for (const Parameter& parameter : parameters_) {
    if (parameter.sparse) continue;
    const TensorView view(parameter.tensor);
    gradients.push_back({parameter.name, view.count, view.dtype});
  }
  return gradients;
}

void ParameterSet::attach(Call on_gradient, Call on_rehooked) {
  calls_ = std::make_shared<const Calls>(Calls{std::move(on_gradient), std::move(on_rehooked)});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hook_accumulator(i);
    // This hook stays with the tensor, also when a cast gives it another accumulator.
    std::weak_ptr<const Calls> alive = calls_;
    parameters_[i].tensor_hook =
        parameters_[i].tensor.register_hook([this, alive, i](const at::Tensor&) {
          if (alive.lock()) check_accumulator(i);
        });
  }
}

void ParameterSet::hook_accumulator(std::size_t i) {
  Parameter& parameter = parameters_[i];
  parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
  std::weak_ptr<const Calls> weak = calls_;
  parameter.post_hook = shim::add_post_hook(*parameter.accumulator, [weak, i] {
    if (const auto calls = weak.lock()) calls->on_gradient(i);
  });
}

// A cast there and back has given the tensor another accumulator: it needs our hook, too, which may
// come too late for the pass under way.
void ParameterSet::check_accumulator(std::size_t i) {
  Parameter& parameter = parameters_[i];
  if (torch::autograd::impl::try_get_grad_accumulator(parameter.tensor) == parameter.accumulator) {
    return;
  }
  const std::string problem = trouble();
  if (!problem.empty()) fail(Code::invalid_argument, "{}", problem);
  hook_accumulator(i);
  calls_->on_rehooked(i);
}

void ParameterSet::detach() {
  calls_.reset();
  for (Parameter& parameter : parameters_) {
    parameter.accumulator->del_post_hook(parameter.post_hook);
    parameter.tensor.remove_hook(parameter.tensor_hook);
  }
}

std::string ParameterSet::trouble() const {
  for (const auto& [name, tensor] : frozen_) {
    if (tensor.requires_grad()) {
      return fmt::format(
          "parameter '{}' needed no gradient when the module was wrapped in "
          "DistributedDataParallel, and needs one now: wrap the module anew after unfreezing",
          name);
    }
  }
  for (const Parameter& parameter : parameters_) {
    const at::Tensor& was = parameter.view;
    const at::Tensor& now = parameter.tensor;
    if (!was.defined()) continue;
    if (now.scalar_type() != was.scalar_type()) {
      return fmt::format(
          "parameter '{}' was {} when the module was wrapped in DistributedDataParallel, and is {} "
          "now: cast the module first, and wrap it then",
          parameter.name, at::toString(was.scalar_type()), at::toString(now.scalar_type()));
    }
    if (now.sizes() != was.sizes()) {
      return fmt::format(
          "parameter '{}' has another shape than when the module was wrapped in "
          "DistributedDataParallel: wrap the module anew",
          parameter.name);
    }
  }
  return {};
}

void ParameterSet::make_view(Parameter& parameter, const Reducer& reducer) {
  // In the parameter's own order, without its gaps.
  const auto strides =
      at::infer_dense_strides(parameter.tensor.sizes(), parameter.tensor.strides());
  parameter.view = at::from_blob(
      reducer.slot(parameter.slot), parameter.tensor.sizes(), strides,
      [block = reducer.block()](void*) {}, parameter.tensor.options().requires_grad(false));
}

void ParameterSet::use_slots(const Reducer& reducer) {
  for (Parameter& parameter : parameters_) {
    if (!parameter.sparse) make_view(parameter, reducer);
  }
}

void ParameterSet::follow_slots(const Reducer& reducer) {
  for (Parameter& parameter : parameters_) {
    if (parameter.sparse) continue;
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    const bool was_view = is_view(parameter, gradient);
    make_view(parameter, reducer);
    if (was_view) gradient = parameter.view;
  }
}

bool ParameterSet::is_view(const Parameter& parameter, const at::Tensor& gradient) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return false;
  return gradient.numel() == 0
             ? gradient.unsafeGetTensorImpl() == parameter.view.unsafeGetTensorImpl()
             : gradient.data_ptr() == parameter.view.data_ptr();
}

bool ParameterSet::is_replaced(std::size_t i) const {
  const at::Tensor& gradient = parameters_[i].tensor.grad();
  return gradient.defined() && !parameters_[i].sparse && !is_view(parameters_[i], gradient);
}

void ParameterSet::put_in_slot(std::size_t i) {
  Parameter& parameter = parameters_[i];
  parameter.absent = false;
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (is_view(parameter, gradient)) return;
  if (!gradient.defined()) {
    parameter.view.zero_();
  } else if (gradient.layout() != at::kStrided) {
    fail(Code::unsupported,
         "parameter '{}' has a sparse gradient: name it in DistributedOptions::sparse",
         parameter.name);
  } else if (gradient.sizes() != parameter.view.sizes()) {
    fail(Code::invalid_argument,
         "the gradient of '{}' has another shape than when the module was wrapped: wrap it anew",
         parameter.name);
  } else {
    parameter.view.copy_(gradient.detach());
  }
  gradient = parameter.view;
}

void ParameterSet::put_absent(std::size_t i, bool nothing) {
  Parameter& parameter = parameters_[i];
  parameter.absent = true;
  parameter.kept = at::Tensor();
  const at::Tensor& gradient = parameter.tensor.grad();
  if (nothing || !gradient.defined()) {
    parameter.view.zero_();
  } else {
    parameter.kept = parameter.view.clone();
  }
}

void ParameterSet::settle(std::size_t i, bool produced) {
  Parameter& parameter = parameters_[i];
  parameter.fresh = false;
  if (!std::exchange(parameter.absent, false)) return;
  if (produced) {
    parameter.tensor.mutable_grad() = parameter.view;
  } else if (parameter.kept.defined()) {
    parameter.view.copy_(parameter.kept);
  }
  parameter.kept = at::Tensor();
}

}  // namespace lockstep
