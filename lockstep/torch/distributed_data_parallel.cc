#include "lockstep/torch/distributed_data_parallel.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <chrono>
#include <mutex>
#include <set>
#include <vector>

#include "lockstep/reducer/reducer.h"
#include "lockstep/torch/tensor.h"
#include "lockstep/torch/version_shim.h"

namespace lockstep {

namespace {

// A parameter that has a gradient, and the node that accumulates it (autograd itself holds that
// node only weakly: without us it would be made anew, without our hook).
struct Parameter {
  std::string name;
  at::Tensor tensor;
  std::shared_ptr<torch::autograd::Node> accumulator;
  std::uintptr_t hook = 0;
  at::Tensor bucket_view;
};

std::vector<Parameter> parameters_of(const torch::nn::Module& module) {
  std::vector<Parameter> parameters;
  std::set<c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    // A parameter that is registered under two names has one gradient.
    if (!item.value().requires_grad() || !seen.insert(item.value().unsafeGetTensorImpl()).second) {
      continue;
    }
    try {
      TensorView(item.value());
    } catch (const Error& error) {
      fail(error.code(), "parameter '{}': {}", item.key(), error.what());
    }
    parameters.push_back({item.key(), item.value(), nullptr, 0, {}});
  }
  return parameters;
}

std::vector<Gradient> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<Gradient> gradients;
  for (const Parameter& parameter : parameters) {
    const TensorView view(parameter.tensor);
    gradients.push_back({parameter.name, view.count, view.dtype});
  }
  return gradients;
}

}  // namespace

class DistributedDataParallel::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const torch::nn::Module& module, Group& group, const DistributedOptions& options)
      : parameters_(parameters_of(module)),
        reducer_(
            std::make_unique<Reducer>(group, gradients_of(parameters_), options.bucket_bytes_max)) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = parameters_[i];
      const at::TensorOptions like = parameter.tensor.options().requires_grad(false);
      // In the parameter's own order, without its gaps.
      const auto strides =
          at::infer_dense_strides(parameter.tensor.sizes(), parameter.tensor.strides());
      parameter.bucket_view = at::from_blob(
          reducer_->slot(i), parameter.tensor.sizes(), strides,
          [block = reducer_->block()](void*) {}, like);
    }
  }

  void attach() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = parameters_[i];
      parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
      parameter.hook = shim::add_post_hook(*parameter.accumulator, [weak = weak_from_this(), i] {
        if (const auto self = weak.lock()) self->on_gradient(i);
      });
    }
  }

  void detach() {
    const std::lock_guard lock(mutex_);
    for (const Parameter& parameter : parameters_) {
      parameter.accumulator->del_post_hook(parameter.hook);
    }
    reducer_.reset();
  }

  StepCost last_step() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }

 private:
  static bool is_view(const Parameter& parameter, const at::Tensor& gradient) {
    return gradient.defined() && gradient.data_ptr() == parameter.bucket_view.data_ptr() &&
           gradient.numel() > 0;
  }

  void on_gradient(std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (reducer_ == nullptr) return;
    if (!reducer_->collecting()) {
      started_ = std::chrono::steady_clock::now();
      reducer_->begin();
      shim::at_end_of_backward([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->on_end();
      });
    }
    reduce_or_abandon([&] {
      take_gradient(parameters_[index]);
      reducer_->ready(index);
    });
  }

  // After this the gradient stands in its slot and .grad() is a view of it.
  void take_gradient(Parameter& parameter) const {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (is_view(parameter, gradient)) return;
    if (!gradient.defined()) {
      parameter.bucket_view.zero_();
    } else if (gradient.is_sparse()) {
      fail(Code::unsupported,
           "parameter '{}' has a sparse gradient; this version reduces dense gradients alone",
           parameter.name);
    } else {
      parameter.bucket_view.copy_(gradient.detach());
    }
    gradient = parameter.bucket_view;
  }

  void on_end() {
    const std::lock_guard lock(mutex_);
    if (reducer_ == nullptr || !reducer_->collecting()) return;
    reduce_or_abandon([&] {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (reducer_->is_ready(i)) continue;
        take_gradient(parameters_[i]);
        reducer_->ready(i);
      }
      reducer_->finish();
    });
    const auto backward = std::chrono::steady_clock::now() - started_;
    cost_.backward_ms = std::chrono::duration<double, std::milli>(backward).count();
    cost_.exposed_comm_ms = reducer_->exposed_ms();
    cost_.bytes_reduced = reducer_->bytes_reduced();
    cost_.buckets = static_cast<int>(reducer_->bucket_count());
  }

  template <class Call>
  void reduce_or_abandon(const Call& call) {
    try {
      call();
    } catch (...) {
      reducer_->abandon();
      throw;
    }
  }

  mutable std::mutex mutex_;  // two threads may be in backward passes; also guards last_step()
  std::vector<Parameter> parameters_;
  std::unique_ptr<Reducer> reducer_;
  std::chrono::steady_clock::time_point started_;
  StepCost cost_;
};

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<torch::nn::Module> module,
                                                 Group& group, DistributedOptions options) {
  if (module == nullptr)
    fail(Code::invalid_argument, "DistributedDataParallel: the module is null");
  if (options.bucket_bytes_max < 1) {
    fail(Code::invalid_argument,
         "DistributedDataParallel: bucket_bytes_max is {}, must be at least 1",
         options.bucket_bytes_max);
  }
  check_same_module(*module, group);
  broadcast_module(*module, group);
  impl_ = std::make_shared<Impl>(*module, group, options);
  impl_->attach();
}

DistributedDataParallel::~DistributedDataParallel() {
  impl_->detach();
}

StepCost DistributedDataParallel::last_step() const {
  return impl_->last_step();
}

}  // namespace lockstep
