// What differs between LibTorch 1.13 and 2.x, in one place.
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <functional>
#include <memory>
#include <utility>

namespace lockstep::shim {

// What holds a node of the graph: a std::shared_ptr, in late 2.x a c10::intrusive_ptr.
using NodeHandle =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

// Runs `hook` after each accumulation into the gradient that `accumulator` feeds. The key removes
// it.
inline std::uintptr_t add_post_hook(torch::autograd::Node& accumulator,
                                    std::function<void()> hook) {
  using torch::autograd::variable_list;
  auto lambda = [hook = std::move(hook)](const variable_list& outputs, const variable_list&) {
    hook();
    return outputs;
  };
  return accumulator.add_post_hook(
      std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(lambda)));
}

// Runs `callback` when the backward pass under way has computed everything.
inline void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace lockstep::shim
