#include "lockstep/torch/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <typeinfo>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/torch/batch_moments.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::string sizes_of(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

// How a graph keeps the group until its backward pass.
struct GroupOfGraph : torch::CustomClassHolder {
  explicit GroupOfGraph(std::shared_ptr<Group> shared) : group(std::move(shared)) {}
  std::shared_ptr<Group> group;
};

// Normalization by given statistics of all ranks. Its backward pass knows that these are functions
// of all ranks' inputs.
struct Normalize : torch::autograd::Function<Normalize> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& dense,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const torch::Tensor& mean, const torch::Tensor& inverse_deviation,
                               std::int64_t count, const std::shared_ptr<Group>& group) {
    context->save_for_backward({dense, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<GroupOfGraph>(group));
    return scale_and_shift(dense, mean, inverse_deviation * weight.to(at::kDouble),
                           bias.to(at::kDouble));
  }

  // With x̂ = (x − mean) · r, r the inverse deviation, N the values per channel of all ranks:
  //   ∂x = weight · r · (∂y − Σ∂y / N − x̂ · Σ(∂y · x̂) / N)      the sums over all ranks
  //   ∂weight = Σ(∂y · x̂), ∂bias = Σ∂y                          the sums over this rank
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      fail(Code::unsupported,
           "SyncBatchNorm: a backward pass with create_graph=true; it has no second derivative. "
           "Call backward without create_graph, or put the module into evaluation mode");
    }
    const auto saved = context->get_saved_variables();
    const torch::Tensor &dense = saved[0], &weight = saved[1], &mean = saved[2], &r = saved[3];
    const auto count = static_cast<double>(context->saved_data["count"].toInt());
    const auto holder = context->saved_data["group"].toCapsule();
    Group& group = *static_cast<GroupOfGraph&>(*holder).group;

    const auto format =
        dense.is_contiguous() ? at::MemoryFormat::Contiguous : dense.suggest_memory_format();
    const torch::Tensor gradient = gradients[0].contiguous(format);
    const torch::Tensor own = gradient_sums(gradient, dense, mean);
    // Also where this rank's input needs no gradient: the peers' may.
    torch::Tensor all = own.clone();
    group.all_reduce(all);
    const torch::Tensor of_input = input_gradient(
        gradient, dense, mean, all[0] / count, all[1] * r * r / count, r * weight.to(at::kDouble));
    const auto type = weight.scalar_type();
    return {of_input, (own[1] * r).to(type), own[0].to(type), {}, {}, {}, {}};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_)
    : options(options_) {
  reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_, Group& group)
    : SyncBatchNormImpl(options_) {
  group_ = std::shared_ptr<Group>(&group, [](Group*) {});
}

void SyncBatchNormImpl::adopt(const Tensors& tensors) {
  weight = register_parameter("weight", tensors.weight,
                              tensors.weight.defined() && tensors.weight.requires_grad());
  bias = register_parameter("bias", tensors.bias,
                            tensors.bias.defined() && tensors.bias.requires_grad());
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked = register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

void SyncBatchNormImpl::reset() {
  const std::int64_t channels = options.num_features();
  Tensors tensors;
  if (options.affine()) {
    tensors.weight = torch::empty({channels}, torch::requires_grad());
    tensors.bias = torch::empty({channels}, torch::requires_grad());
  }
  if (options.track_running_stats()) {
    tensors.running_mean = torch::empty({channels});
    tensors.running_var = torch::empty({channels});
    tensors.num_batches_tracked = torch::empty({}, torch::kLong);
  }
  adopt(tensors);
  reset_parameters();
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::reset_parameters() {
  reset_running_stats();
  if (!weight.defined()) return;
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
}

void SyncBatchNormImpl::check(const torch::Tensor& input) const {
  if (!input.defined()) fail(Code::invalid_argument, "SyncBatchNorm: the input is undefined");
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    fail(Code::invalid_argument,
         "SyncBatchNorm: the input's sizes are {}, must be batch × {} channels × any others",
         sizes_of(input), options.num_features());
  }
  if (!input.device().is_cpu() || !input.is_floating_point()) {
    fail(Code::unsupported,
         "SyncBatchNorm: the input is of type {} on {}; this build takes f16, "
         "bf16, f32 and f64 on the CPU",
         at::toString(input.scalar_type()), input.device().str());
  }
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  check(input);
  if (!is_training()) return evaluate(input);
  if (group_ == nullptr) {
    fail(Code::invalid_argument,
         "SyncBatchNorm has no group to train over: call lockstep::convert_sync_batch_norm(module, "
         "group) once the module is built (in one process, with a group of one)");
  }
  const torch::Tensor dense = dense_by_channel(input);
  const BatchMoments moments = moments_of_all_ranks(batch_moments(dense), *group_);
  if (moments.count < 2) {
    fail(Code::invalid_argument,
         "SyncBatchNorm: Expected more than 1 value per channel when training, got {} on all {} "
         "ranks together (here the input's sizes are {})",
         moments.count, group_->size(), sizes_of(input));
  }
  const auto count = static_cast<double>(moments.count);
  if (running_mean.defined()) track(moments.mean, moments.squares / (count - 1));
  const torch::Tensor inverse_deviation = (moments.squares / count + options.eps()).rsqrt();
  // A function of autograd takes no undefined tensors.
  const bool affine = weight.defined();
  return Normalize::apply(dense, affine ? weight : at::ones_like(moments.mean),
                          affine ? bias : at::zeros_like(moments.mean), moments.mean,
                          inverse_deviation, moments.count, group_);
}

// As torch::nn::BatchNorm2d does; what it cannot compute in half types goes through f32.
torch::Tensor SyncBatchNormImpl::evaluate(const torch::Tensor& input) const {
  const bool half = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  const auto wide = [half](const torch::Tensor& tensor) {
    return half && tensor.defined() ? tensor.to(at::kFloat) : tensor;
  };
  const auto options_of_call = torch::nn::functional::BatchNormFuncOptions()
                                   .weight(wide(weight))
                                   .bias(wide(bias))
                                   .training(!running_mean.defined())
                                   .momentum(0.0)
                                   .eps(options.eps());
  const torch::Tensor output = torch::nn::functional::batch_norm(
      wide(input), wide(running_mean), wide(running_var), options_of_call);
  return output.to(input.scalar_type());
}

void SyncBatchNormImpl::track(const torch::Tensor& mean, const torch::Tensor& unbiased_variance) {
  const torch::NoGradGuard no_grad;
  num_batches_tracked.add_(1);
  const auto momentum = options.momentum();
  const double share = momentum ? *momentum : 1.0 / num_batches_tracked.item<double>();
  const auto move = [share](const torch::Tensor& running, const torch::Tensor& seen) {
    running.copy_(running.to(at::kDouble) * (1 - share) + seen * share);
  };
  move(running_mean, mean);
  move(running_var, unbiased_variance);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  const auto momentum = options.momentum();
  stream << std::boolalpha << "lockstep::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (momentum) {
    stream << *momentum;
  } else {
    stream << "cumulative";
  }
  stream << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ", ";
  if (group_ == nullptr) {
    stream << "no group)";
  } else {
    stream << "ranks=" << group_->size() << ")";
  }
}

namespace {

// A batch normalization of LibTorch's inside a module, and every place that has it.
struct Found {
  struct Place {
    torch::nn::Module* parent;  // null: it is the module itself
    std::string name;           // there
    std::string path;           // from the root
  };
  std::shared_ptr<torch::nn::Module> module;
  std::vector<Place> places;
};

// What convert_sync_batch_norm has to do.
struct Conversion {
  std::vector<std::shared_ptr<SyncBatchNormImpl>> ready;
  std::vector<Found> found;
};

std::shared_ptr<SyncBatchNormImpl> replacement_of(const torch::nn::Module& module) {
  if (const auto* one = dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module)) {
    return std::make_shared<SyncBatchNormImpl>(*one);
  }
  if (const auto* two = dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module)) {
    return std::make_shared<SyncBatchNormImpl>(*two);
  }
  if (const auto* three = dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module)) {
    return std::make_shared<SyncBatchNormImpl>(*three);
  }
  return nullptr;
}

template <class... Types>
bool is_any_of(const torch::nn::Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

bool is_batch_norm(const torch::nn::Module& module) {
  return is_any_of<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl,
                   torch::nn::BatchNorm3dImpl>(module);
}

// Notes `module` at its place, and everything below it once.
void collect(const std::shared_ptr<torch::nn::Module>& module, const Found::Place& place,
             std::set<torch::nn::Module*>& seen, Conversion& conversion) {
  const bool first = seen.insert(module.get()).second;
  if (is_batch_norm(*module)) {
    auto& found = conversion.found;
    if (first) found.push_back({module, {}});
    std::find_if(found.begin(), found.end(), [&](const Found& norm) {
      return norm.module == module;
    })->places.push_back(place);
    return;
  }
  if (!first) return;
  if (auto sync = std::dynamic_pointer_cast<SyncBatchNormImpl>(module)) {
    conversion.ready.push_back(std::move(sync));
  }
  for (const auto& child : module->named_children()) {
    const std::string path =
        place.path.empty() ? child.key() : fmt::format("{}.{}", place.path, child.key());
    collect(child.value(), {module.get(), child.key(), path}, seen, conversion);
  }
}

std::string type_of(const torch::nn::Module& module) {
  std::string name = c10::demangle(typeid(module).name());
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

// Why it cannot be replaced; empty: it can. Only a Sequential calls its elements without knowing
// their types, and only if nobody else holds the element will nobody else call it.
std::string obstacle(const Found& found) {
  constexpr int kHoldersPerPlace = 2;  // a Sequential's list, and its names of children
  for (const Found::Place& place : found.places) {
    if (place.parent == nullptr)
      return fmt::format("the module itself, {}", type_of(*found.module));
    if (dynamic_cast<torch::nn::SequentialImpl*>(place.parent) != nullptr) continue;
    return fmt::format("'{}' ({}, which {} calls by its type)", place.path, type_of(*found.module),
                       type_of(*place.parent));
  }
  const auto holders = static_cast<std::size_t>(found.module.use_count()) - 1;  // less this one
  if (holders != kHoldersPerPlace * found.places.size()) {
    return fmt::format("'{}' ({}, which a member or variable outside its Sequential holds too)",
                       found.places[0].path, type_of(*found.module));
  }
  return "";
}

void replace(const Found& found, const std::shared_ptr<SyncBatchNormImpl>& replacement) {
  for (const Found::Place& place : found.places) {
    auto& sequential = dynamic_cast<torch::nn::SequentialImpl&>(*place.parent);
    sequential.replace_module(place.name, replacement);
    for (torch::nn::AnyModule& element : sequential) {
      if (element.ptr() == found.module) element = torch::nn::AnyModule(replacement);
    }
  }
}

// Every rank throws what the first rank with an objection says.
void agree(const std::string& objection, std::size_t count, Group& group) {
  const std::string agreed = fmt::format("{} batch normalizations", count);
  const auto texts = group.exchange(objection.empty() ? agreed : "!" + objection);
  for (const std::string& text : texts) {
    if (text.starts_with('!')) fail(Code::unsupported, "{}", text.substr(1));
  }
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    fail(Code::invalid_argument,
         "convert_sync_batch_norm: the replicas are not the same model: {} on rank 0, {} on rank "
         "{}",
         texts[0], texts[rank], rank);
  }
}

}  // namespace

int convert_sync_batch_norm(const std::shared_ptr<torch::nn::Module>& module, Group& group) {
  if (module == nullptr)
    fail(Code::invalid_argument, "convert_sync_batch_norm: the module is null");
  Conversion conversion;
  std::set<torch::nn::Module*> seen;
  collect(module, {nullptr, "", ""}, seen, conversion);
  std::string obstacles;
  for (const Found& found : conversion.found) {
    const std::string why = obstacle(found);
    if (!why.empty()) obstacles += (obstacles.empty() ? "" : ", ") + why;
  }
  const std::size_t count = conversion.ready.size() + conversion.found.size();
  agree(obstacles.empty() ? ""
                          : fmt::format("convert_sync_batch_norm cannot replace {}: declare them "
                                        "as lockstep::SyncBatchNorm, which takes the same options",
                                        obstacles),
        count, group);
  if (count == 0) return 0;
  const auto own = std::make_shared<Group>(std::move(*group.split(0)));
  for (const auto& norm : conversion.ready) norm->set_group(own);
  for (const Found& found : conversion.found) {
    const auto replacement = replacement_of(*found.module);
    replacement->set_group(own);
    replace(found, replacement);
  }
  return static_cast<int>(count);
}

}  // namespace lockstep
