// ParameterSet: the parameters that are trained, and their gradients on the way between autograd
// and the reducer's slots.
//
// Thread rule: the caller locks. The hooks call back on the threads that are in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/reducer/reducer.h"
#include "lockstep/torch/module_view.h"
#include "lockstep/torch/version_shim.h"

namespace lockstep {

class ParameterSet {
 public:
  // A parameter that stands under two names is one. `sparse`: those whose gradients are sparse,
  // by name. Throws Error naming the parameter that cannot be reduced, or a name that is none.
  ParameterSet(const ModuleView& module, const std::vector<std::string>& sparse);

  std::size_t size() const { return parameters_.size(); }
  const std::string& name(std::size_t i) const { return parameters_[i].name; }
  const at::Tensor& tensor(std::size_t i) const { return parameters_[i].tensor; }
  bool is_sparse(std::size_t i) const { return parameters_[i].sparse; }
  // Of the dense ones, in order, for the reducer; which one parameter i is there.
  std::vector<Gradient> gradients() const;
  std::size_t slot_of(std::size_t i) const { return parameters_[i].slot; }

  // `on_gradient(i)` after each accumulation into the gradient of parameter i. `on_rehooked(i)`
  // instead, before the accumulation, when that cannot be said in this pass: the parameter has been
  // cast there and back.
  using Call = std::function<void(std::size_t)>;
  void attach(Call on_gradient, Call on_rehooked);
  void detach();
  // What has happened to a parameter that makes its reduction impossible, for a person; empty:
  // nothing.
  std::string trouble() const;

  // The slots lie where the reducer says, from now on.
  void use_slots(const Reducer& reducer);
  // The slots have moved with what they hold: gradients that were views of them still are.
  void follow_slots(const Reducer& reducer);

  // An accumulation that has not been reduced yet.
  bool is_fresh(std::size_t i) const { return parameters_[i].fresh; }
  void set_fresh(std::size_t i, bool fresh) { parameters_[i].fresh = fresh; }
  // The gradient stands in the slot and .grad() is a view of it.
  void put_in_slot(std::size_t i);
  // A gradient that the user has put in the place of the view, by hand.
  bool is_replaced(std::size_t i) const;
  // For a gradient that was not produced here: the slot holds what .grad() does, or zeros, and what
  // it holds is kept until settle(). `nothing`: zeros in any case.
  void put_absent(std::size_t i, bool nothing);
  // After the reduction: a gradient that somebody produced is there; else it is as it was.
  void settle(std::size_t i, bool produced);

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    bool sparse = false;
    std::size_t slot = 0;
    // Autograd itself holds the node that accumulates the gradient only weakly: without us it would
    // be made anew, without our hook.
    shim::NodeHandle accumulator;
    std::uintptr_t post_hook = 0;
    unsigned tensor_hook = 0;
    at::Tensor view;
    bool fresh = false;
    bool absent = false;
    at::Tensor kept;
  };
  void hook_accumulator(std::size_t i);
  void check_accumulator(std::size_t i);
  void make_view(Parameter& parameter, const Reducer& reducer);
  static bool is_view(const Parameter& parameter, const at::Tensor& gradient);

  std::vector<Parameter> parameters_;
  // Those that needed no gradient when the set was made.
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  // While attached.
  struct Calls {
    Call on_gradient;
    Call on_rehooked;
  };
  std::shared_ptr<const Calls> calls_;
};

}  // namespace lockstep
