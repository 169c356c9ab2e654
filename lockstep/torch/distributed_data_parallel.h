// DistributedDataParallel: keeps the replicas of a module identical (Li et al., "PyTorch
// Distributed", VLDB 2020: gradients in buckets, reduced while backward still runs).
//
//   auto group = lockstep::init();
//   auto net = std::make_shared<Net>();
//   lockstep::DistributedDataParallel ddp(net, group);
//   …
//   loss.backward();      // gradients are averaged over all ranks when this returns
//
// It attaches to the module: forward is called on the module itself. It detaches when destroyed,
// and the group must outlive it. Gradients become views of buckets, which live as long as they are
// used.
//
// A parameter that took no part in a backward pass counts as zero on that rank (what an earlier
// pass left in its gradient, if it was not cleared, counts as it is).
//
// Errors: an Error (a lost peer, ranks that do not agree) comes out of backward().
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "lockstep/group/group.h"
#include "lockstep/torch/replicas.h"

namespace lockstep {

struct DistributedOptions {
  // A bucket is reduced when all its gradients are there. Larger ones cost less, smaller ones start
  // earlier. Bytes, at least 1; a gradient larger than this has a bucket of its own.
  std::int64_t bucket_bytes_max = std::int64_t{4} << 20;
};

// What the reduction of the last backward pass cost this rank.
struct StepCost {
  double backward_ms = 0;  // first gradient ready → backward returned
  double exposed_comm_ms =
      0;  // part of it in which this thread reduced or waited instead of computing
  std::int64_t bytes_reduced = 0;
  int buckets = 0;
};

class DistributedDataParallel {
 public:
  // Collective. Checks that names, shapes, dtypes and order of parameters and buffers agree on all
  // ranks (else Error(invalid_argument) with the first difference, on every rank), then copies rank
  // 0's parameters and buffers to all. Throws Error(unsupported) for sparse or non-CPU parameters.
  DistributedDataParallel(std::shared_ptr<torch::nn::Module> module, Group& group,
                          DistributedOptions options = {});
  template <class Contained>
  DistributedDataParallel(const torch::nn::ModuleHolder<Contained>& module, Group& group,
                          DistributedOptions options = {})
      : DistributedDataParallel(std::shared_ptr<torch::nn::Module>(module.ptr()), group, options) {}
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  StepCost last_step() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the hooks, which may outlive this object in a graph
};

}  // namespace lockstep
