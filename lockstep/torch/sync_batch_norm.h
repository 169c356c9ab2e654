// SyncBatchNorm: batch normalization over the batches of all ranks together (Ioffe and Szegedy,
// "Batch Normalization", ICML 2015), also when the ranks' batches differ in size.
//
//   struct Net : torch::nn::Module {
//     lockstep::SyncBatchNorm norm{64};            // where torch::nn::BatchNorm2d norm{64} stood
//     …
//   };
//   auto net = std::make_shared<Net>();
//   lockstep::convert_sync_batch_norm(net, group); // gives every one of them the group
//
// In training mode a forward pass is one small all_gather, a backward pass one small all_reduce:
// all ranks must make both, in the same order, a rank without samples (zero rows) too. In
// evaluation mode nothing is exchanged. The running statistics are bit-identical on all ranks.
//
// Gradients of weight and bias are those of the rank's own samples: DistributedDataParallel
// averages them like all others, which makes them those of one process with the whole batch (for a
// mean loss over unequal batches: with each rank's loss multiplied by ShardBatch::weight).
//
// Errors: Error(invalid_argument) for a training batch with fewer than 2 values per channel on all
// ranks together, on every rank. Error(unsupported) for a backward pass with create_graph.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>

#include "lockstep/group/group.h"

namespace lockstep {

// Takes what torch::nn::BatchNorm1d, 2d and 3d take: batch × channels × any further dimensions, on
// the CPU, f16, bf16, f32 or f64, in any layout (channels last stays channels last). Options,
// parameters, buffers and their names are those of torch::nn::BatchNorm2d, so a checkpoint of one
// loads into the other. Statistics are computed in f64.
class SyncBatchNormImpl final : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // Without a group it evaluates, but refuses to train: convert_sync_batch_norm gives it one.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options);
  // Over `group`, which must outlive the module and the graphs made with it.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group& group);
  // Takes the place of `other`: its options, its mode and its very tensors.
  template <std::size_t D, class Derived>
  explicit SyncBatchNormImpl(const torch::nn::BatchNormImplBase<D, Derived>& other)
      : options(other.options) {
    adopt({other.weight, other.bias, other.running_mean, other.running_var,
           other.num_batches_tracked});
    train(other.is_training());
  }

  torch::Tensor forward(const torch::Tensor& input);

  // Shared, because the layers of a module and their graphs use one group, and the last of them
  // frees it.
  void set_group(std::shared_ptr<Group> group) { group_ = std::move(group); }

  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  torch::nn::BatchNormOptions options;
  // Undefined where the options say so, as in torch::nn::BatchNorm2d.
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  struct Tensors {
    torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  };
  void adopt(const Tensors& tensors);
  void check(const torch::Tensor& input) const;
  torch::Tensor evaluate(const torch::Tensor& input) const;
  void track(const torch::Tensor& mean, const torch::Tensor& unbiased_variance);

  std::shared_ptr<Group> group_;
};

TORCH_MODULE(SyncBatchNorm);

// Collective. Makes every batch normalization in `module` one over all ranks of `group`; how many
// there are.
//
// A SyncBatchNorm, wherever it is, gets the group. A torch::nn::BatchNorm1d, 2d or 3d in a
// Sequential is replaced by a SyncBatchNorm with the same options and the same tensors: optimizers
// and DistributedDataParallel stay valid. Any other cannot be replaced from outside, because C++
// calls it by its type; then Error(unsupported) names each of them and what to write instead, on
// every rank, and nothing is changed.
//
// The layers get a group of their own (the ranks of `group`, split off), so that they need not wait
// for reductions of gradients under way, and `group` need not outlive them.
int convert_sync_batch_norm(const std::shared_ptr<torch::nn::Module>& module, Group& group);
template <class Contained>
int convert_sync_batch_norm(const torch::nn::ModuleHolder<Contained>& module, Group& group) {
  return convert_sync_batch_norm(std::shared_ptr<torch::nn::Module>(module.ptr()), group);
}

}  // namespace lockstep
