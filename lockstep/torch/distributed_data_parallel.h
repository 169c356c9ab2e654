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
// used. docs/ddp.md has all of it with examples.
//
// What a backward pass does not reach: a parameter that took no part on this rank counts as zero
// here (what no_sync() passes have left in its gradient counts as it is). One that took no part on
// any rank keeps the gradient that it had, or none.
//
// What may change after wrapping: gradients may be set to none or replaced. Freezing a parameter
// works. Casting to another type, adding, replacing or unfreezing a parameter is an
// Error(invalid_argument) out of the next backward(), which names it; wrap the module anew.
//
// Errors: an Error (a lost peer, ranks that do not agree) comes out of backward().
//
// Thread rule: passes of one module run one at a time; the options may be changed between them.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/reducer/communication_hook.h"
#include "lockstep/torch/module_view.h"
#include "lockstep/torch/replicas.h"
#include "lockstep/torch/step_cost.h"

namespace lockstep {

// What the mean is taken over.
enum class Weighting : std::uint8_t {
  ranks,    // every rank counts the same
  samples,  // each as much as it says by add_samples(): the loss is then the sum over its samples
};

// When buffers (running statistics) become rank 0's.
enum class BufferSync : std::uint8_t {
  after_backward,  // at the end of every backward pass that reduces
  on_request,      // when sync_buffers() is called
};

struct DistributedOptions {
  // A bucket is reduced when all its gradients are there. Larger ones cost less, smaller ones start
  // earlier. Bytes, at least 1; a gradient larger than this has a bucket of its own.
  std::int64_t bucket_bytes_max = std::int64_t{4} << 20;
  // The same for the bucket that is complete first.
  std::int64_t first_bucket_bytes_max = std::int64_t{1} << 20;
  // Find out in the first passes who shall reduce while backward computes: the thread in backward,
  // or the group's progress thread.
  bool choose_runner = true;
  Weighting weighting = Weighting::ranks;
  BufferSync buffers = BufferSync::after_backward;
  // Only every so-many-th backward pass reduces, and its gradients are the mean over these passes,
  // too (with Weighting::samples: over all their samples). The last passes of an epoch may be
  // fewer: reduce_next(). Passes under no_sync() do not count.
  std::int64_t accumulate = 1;
  // Parameters and buffers that are left alone, by name, or by the name of a module above them.
  std::vector<std::string> leave_out = {};
  // Parameters with sparse gradients, by name. Those of torch::nn::Embedding and EmbeddingBag with
  // sparse(true) are known.
  std::vector<std::string> sparse = {};
  // Reduce f32 and f64 gradients as f16 or bf16: half the bytes, and rounding (compress_to).
  std::optional<at::ScalarType> reduce_in = {};
  // After so many passes it is checked that the parameters are bit-identical on all ranks; else
  // backward() throws Error(corrupt) that names the first that is not. 0: never. Reads every
  // parameter once.
  std::int64_t check_every = 100;
  // Look for infinities and NaN in what is reduced. The first ones are reported, by parameter and
  // rank, on standard error; see also StepCost::not_finite.
  bool check_finite = true;
};

struct JoinOptions {
  // What gradients are divided by when some ranks have run out of data.
  enum class DivideBy : std::uint8_t { all_ranks, live_ranks };
  DivideBy divide_by = DivideBy::all_ranks;
  // Called on a rank that has run out, after each pass of the others, when the gradients are there:
  // optimizer.step() keeps parameters and optimizer state the same everywhere. Without it the
  // parameters and buffers of a rank that was live to the end are copied at the end, but the
  // optimizer's state on the others has stood still.
  std::function<void()> step = {};
};

class DistributedDataParallel {
 public:
  // Collective. Checks that names, shapes, dtypes and order of parameters and buffers agree on all
  // ranks (else Error(invalid_argument) with the first difference, on every rank), then copies rank
  // 0's parameters and buffers to all. `module` is a shared_ptr to a torch::nn::Module, a module
  // holder, or a TorchScript module. Throws Error(invalid_argument) for options that make no sense,
  // Error(unsupported) for parameters that are not on the CPU.
  DistributedDataParallel(const ModuleView& module, Group& group, DistributedOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // While the guard lives, backward passes add to the gradients of this rank and send nothing; the
  // first pass after it reduces all that has come together. What counts is when backward() runs.
  class NoSync;
  [[nodiscard]] NoSync no_sync();

  // With DistributedOptions::accumulate: the next backward pass reduces, and completes what has
  // come together.
  void reduce_next();
  // The last backward pass has reduced: the gradients are ready for the optimizer.
  bool is_reduced() const;

  // Runs `loop`, in which ranks may take different numbers of steps: a rank that comes out of it
  // answers the others until all are done. Collective. Only passes of this module are answered: no
  // other collective may stand in the loop, SyncBatchNorm's included.
  void join(const std::function<void()>& loop, const JoinOptions& options = {});

  // With Weighting::samples: so many samples (tokens, …) are in the losses of this rank until the
  // next pass that reduces. May be called several times, once for each micro-batch.
  void add_samples(std::int64_t count);

  // Collective: buffers become rank 0's.
  void sync_buffers();

  // Communication hooks stand in front of the reduction (reducer/communication_hook.h). Collective:
  // every rank sets the same ones, between two passes. set_hook replaces all, reduce_in's too; an
  // empty one leaves the plain reduction. add_hook puts one in front of those that are there.
  void set_hook(CommunicationHook hook);
  void add_hook(CommunicationHook hook);

  // For last_step(): a step begins (optional).
  void begin_step();
  StepCost last_step() const;

  // Keeps what each pass did, from now on, for write_trace().
  void start_trace();
  // Collective. Rank 0 writes the spans of all ranks, on rank 0's clock, in Chrome's trace format
  // (Perfetto opens it). Throws Error(io) on every rank if it cannot.
  void write_trace(const std::string& path);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the hooks, which may outlive this object in a graph
};

class DistributedDataParallel::NoSync {
 public:
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  friend class DistributedDataParallel;
  explicit NoSync(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
