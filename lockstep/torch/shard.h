// shard: a map data set of torch::data, walked by all ranks together.
//
//   for (auto& batch : lockstep::shard(dataset, group, {.batch = 64, .epoch = epoch})) {
//     (loss(net->forward(batch.data), batch.target) * batch.weight).backward();
//   }
//
// Each rank gets its share of every global batch (see sampler.h), so that the samples of a step are
// the same on any number of ranks. Every rank walks the same number of batches.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/transforms/stack.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sampler.h"
#include "lockstep/group/group.h"

namespace lockstep {

struct ShardOptions {
  // Samples of one step on all ranks together; at least the number of ranks.
  std::int64_t batch = 64;
  // Decides, with the seed, the order of the samples: count it up from epoch to epoch.
  std::int64_t epoch = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Leave out the samples that do not fill a global batch.
  bool drop_last = false;
};

// This rank's part of one global batch.
struct ShardBatch {
  torch::Tensor data;    // samples × what the data set gives
  torch::Tensor target;  // likewise
  // Multiply a mean loss by it, so that the gradients averaged over ranks are the mean over the
  // samples of the global batch. 1 unless the ranks' shares differ. A rank that has no sample in a
  // short last batch gets one sample with weight 0: it takes part and changes nothing.
  double weight = 1;
};

// One epoch. Refers to the data set, which must outlive it; loads a batch when it is stepped to.
template <class Dataset>
class Shard {
 public:
  class Iterator {
   public:
    Iterator(Shard* shard, std::int64_t step) : shard_(shard), step_(step) { load(); }
    ShardBatch& operator*() { return batch_; }
    ShardBatch* operator->() { return &batch_; }
    Iterator& operator++() {
      ++step_;
      load();
      return *this;
    }
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    void load() {
      if (step_ < shard_->steps()) batch_ = shard_->load(step_);
    }

    Shard* shard_;
    std::int64_t step_;
    ShardBatch batch_;
  };

  Shard(Dataset& dataset, std::int64_t sample_count, int rank, int ranks,
        const ShardOptions& options)
      : dataset_(&dataset),
        epoch_(options.epoch),
        sampler_({.sample_count = sample_count,
                  .global_batch = options.batch,
                  .rank = rank,
                  .ranks = ranks,
                  .seed = options.seed,
                  .shuffle = options.shuffle,
                  .drop_last = options.drop_last}) {}

  // The epoch of the next walk.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::int64_t steps() const { return sampler_.steps_per_epoch(); }
  Iterator begin() { return Iterator(this, 0); }
  Iterator end() { return Iterator(this, steps()); }

 private:
  ShardBatch load(std::int64_t step) {
    const auto samples = sampler_.samples(epoch_, step);
    std::vector<std::size_t> indices(samples.begin(), samples.end());
    if (indices.empty()) indices.push_back(0);
    auto examples = stacked(dataset_->get_batch(indices));
    return {examples.data, examples.target, sampler_.loss_weight(step)};
  }

  template <class Example>
  static Example stacked(std::vector<Example> examples) {
    return torch::data::transforms::Stack<Example>().apply_batch(std::move(examples));
  }
  template <class Example>
  static Example stacked(Example example) {
    return example;
  }

  Dataset* dataset_;
  std::int64_t epoch_;
  Sampler sampler_;
};

// Throws Error(invalid_argument) for a batch smaller than the number of ranks.
template <class Dataset>
Shard<Dataset> shard(Dataset& dataset, const Group& group, const ShardOptions& options = {}) {
  if (options.batch < group.size()) {
    fail(Code::invalid_argument,
         "a global batch of {} for {} ranks: each rank needs at least one sample; raise the batch",
         options.batch, group.size());
  }
  const auto sample_count = dataset.size();
  if (!sample_count) {
    fail(Code::unsupported, "shard: the data set does not know its size");
  }
  return Shard<Dataset>(dataset, static_cast<std::int64_t>(*sample_count), group.rank(),
                        group.size(), options);
}

}  // namespace lockstep
