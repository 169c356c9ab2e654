// shard: a map data set of torch::data, walked by all ranks together.
//
//   auto batches = lockstep::shard(dataset, group, {.batch = 64, .workers = 2});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     for (auto& batch : batches) {
//       (loss(net->forward(batch.data), batch.target) * batch.weight).backward();
//     }
//   }
//
// Each rank gets its share of every global batch (see sampler.h), so that the samples of a step are
// the same on any number of ranks. Every rank walks the same number of batches. Options, data set
// and position must be the same on all ranks. docs/data.md shows evaluation, augmentation and how
// to go on within an epoch.
//
// Thread rule: a shard and its iterators belong to one thread. With workers the data set's
// get_batch is called from several threads at once.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/transforms/stack.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/position.h"
#include "lockstep/data/prefetcher.h"
#include "lockstep/data/sampler.h"
#include "lockstep/group/group.h"
#include "lockstep/torch/one_thread.h"

namespace lockstep {

struct ShardOptions {
  // Samples of one step on all ranks together; at least the number of ranks. 0: batch_per_rank
  // counts, or else it is 64.
  std::int64_t batch = 0;
  // Samples of one step on each rank, in place of batch: then the global batch grows with the
  // number of ranks.
  std::int64_t batch_per_rank = 0;
  // Where the first walk starts; decides, with the seed, the order of the samples.
  std::int64_t epoch = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Leave out the samples of an epoch that do not fill a global batch.
  bool drop_last = false;
  // For evaluation: nothing but samples, each exactly once. A rank that has none in a short last
  // batch gets a batch of 0 rows.
  bool exact = false;
  // Threads that load ahead, at most 256; 0: a batch is loaded when it is stepped to.
  int workers = 0;
  // Batches that workers load ahead of the loop, at most 4,096; 0: two for each worker.
  std::int64_t prefetch = 0;
};

constexpr int kWorkersMax = 256;
constexpr std::int64_t kPrefetchMax = 4096;

// This rank's part of one global batch.
struct ShardBatch {
  torch::Tensor data;    // samples × what the data set gives
  torch::Tensor target;  // likewise; undefined if the data set has none
  // Multiply a mean loss by it, so that the gradients averaged over ranks are the mean over the
  // samples of the global batch. 1 unless the ranks' shares differ. A rank that has no sample in a
  // short last batch gets one sample with weight 0 (in an exact shard 0 rows): it takes part and
  // changes nothing.
  double weight = 1;
  // The numbers of this rank's samples in the data set, in the order of the rows; empty for a rank
  // that has none.
  std::vector<std::int64_t> samples;
  // torch::manual_seed(batch.seed) makes what is drawn in this step (dropout) a function of the
  // shard's seed, epoch, position and rank, the same after a restart.
  std::uint64_t seed = 0;
};

// A data set with random augmentation has this beside get_batch(samples); shard calls it instead.
// All draws for samples[i] come from a generator made with seeds[i].
template <class Dataset>
concept SeededDataset = requires(Dataset& dataset, c10::ArrayRef<std::size_t> samples,
                                 c10::ArrayRef<std::uint64_t> seeds) {
  dataset.get_batch(samples, seeds);
};

// A place in an endless row of epochs. A range-for walks from there to the end of the epoch; the
// next one walks the next epoch. Refers to the data set, which must outlive it and its iterators.
template <class Dataset>
class Shard {
 public:
  class Iterator;

  // Throws Error(invalid_argument) for options that cannot be.
  Shard(Dataset& dataset, std::int64_t sample_count, int rank, int ranks,
        const ShardOptions& options);

  // The next batch that will be walked is the first after this position. A batch in the loop's
  // hands counts as done: save the position after the step that uses it. What workers have loaded
  // beyond it does not count. The same on all ranks. After an epoch's last batch: the beginning of
  // the next.
  const DataPosition& position() const { return position_; }
  // Goes on from there, with any number of ranks and any batch: the samples that are left of the
  // epoch come each exactly once. Between loops only. Throws Error(invalid_argument) for a position
  // in another order of samples (other seed, shuffle or number of samples).
  void restore(const DataPosition& position);
  // Goes to the beginning of that epoch, unless the position is within it: then stays. Between
  // loops only.
  void set_epoch(std::int64_t epoch);

  // Batches of a whole epoch.
  std::int64_t steps() const { return sampler(0).steps_per_epoch(); }
  // Samples of a whole epoch that drop_last leaves out.
  std::int64_t dropped() const { return sampler(0).dropped(); }
  // Rows of a whole epoch, on all ranks together, that stand for no sample and have weight 0.
  std::int64_t padded() const { return options_.exact ? 0 : sampler(0).empty_shares(); }

  // One walk at a time. An early end of the loop waits for the loads under way.
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Walk;

  Sampler sampler(std::int64_t samples_done) const {
    SamplerOptions options = sampler_options_;
    options.samples_done = samples_done;
    return Sampler(options);
  }
  ShardBatch load(const Sampler& sampler, std::int64_t epoch, std::int64_t step) const;
  auto examples_of(const std::vector<std::int64_t>& samples, std::int64_t epoch) const;

  // Constant after construction.
  Dataset* dataset_;
  ShardOptions options_;
  SamplerOptions sampler_options_;

  DataPosition position_;
};

// Throws Error(invalid_argument) for options that cannot be, Error(unsupported) for a data set that
// does not know its size.
template <class Dataset>
Shard<Dataset> shard(Dataset& dataset, const Group& group, const ShardOptions& options = {}) {
  const auto sample_count = dataset.size();
  if (!sample_count) {
    fail(Code::unsupported, "shard: the data set does not know its size");
  }
  return Shard<Dataset>(dataset, static_cast<std::int64_t>(*sample_count), group.rank(),
                        group.size(), options);
}

// --- what follows is not part of the interface ---

namespace internal {

// The global batch that the options ask for. Checks all of them that need no data set.
std::int64_t checked_global_batch(const ShardOptions& options, int ranks);

// Throws unless `position` is one in the order of samples that `now` is in.
void check_same_order(const DataPosition& position, const DataPosition& now);

template <class Example>
Example stacked(std::vector<Example> examples) {
  return torch::data::transforms::Stack<Example>().apply_batch(std::move(examples));
}
template <class Example>
Example stacked(Example example) {
  return example;
}

}  // namespace internal

// From a position to the end of its epoch. Stays where it is: the workers refer to it.
template <class Dataset>
struct Shard<Dataset>::Walk {
  Walk(const Shard& shard, const DataPosition& from)
      : epoch(from.epoch),
        sampler(shard.sampler(from.samples_done)),
        steps(sampler.steps()),
        batches(
            {.item_count = steps,
             .workers = shard.options_.workers,
             .ahead = shard.options_.prefetch},
            [this, &shard](std::int64_t index) { return shard.load(sampler, epoch, index); },
            use_one_thread) {}

  const std::int64_t epoch;
  const Sampler sampler;
  const std::int64_t steps;
  std::int64_t step = 0;  // batches that the loop has been given
  Prefetcher<ShardBatch> batches;
};

template <class Dataset>
class Shard<Dataset>::Iterator {
 public:
  ShardBatch& operator*() { return batch_; }
  ShardBatch* operator->() { return &batch_; }
  Iterator& operator++() {
    advance();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return over_; }

 private:
  friend class Shard;
  explicit Iterator(Shard* shard)
      : shard_(shard), walk_(std::make_unique<Walk>(*shard, shard->position_)) {
    advance();
  }

  void advance() {
    batch_ = {};  // its memory can serve the next one
    DataPosition& position = shard_->position_;
    over_ = walk_->step == walk_->steps;
    if (!over_) {
      batch_ = walk_->batches.next();
      position.samples_done = walk_->sampler.global_positions(walk_->step++).end();
    }
    if (walk_->step == walk_->steps) {
      position.epoch = walk_->epoch + 1;
      position.samples_done = 0;
    }
  }

  Shard* shard_;
  std::unique_ptr<Walk> walk_;
  ShardBatch batch_;
  bool over_ = false;
};

template <class Dataset>
Shard<Dataset>::Shard(Dataset& dataset, std::int64_t sample_count, int rank, int ranks,
                      const ShardOptions& options)
    : dataset_(&dataset),
      options_(options),
      sampler_options_({.sample_count = sample_count,
                        .global_batch = internal::checked_global_batch(options, ranks),
                        .rank = rank,
                        .ranks = ranks,
                        .seed = options.seed,
                        .shuffle = options.shuffle,
                        .drop_last = options.drop_last}),
      position_({.epoch = options.epoch,
                 .sample_count = sample_count,
                 .seed = options.seed,
                 .shuffle = options.shuffle}) {
  if (options_.prefetch == 0) options_.prefetch = std::max(1, 2 * options_.workers);
  sampler(0);  // checks
}

template <class Dataset>
void Shard<Dataset>::restore(const DataPosition& position) {
  internal::check_same_order(position, position_);
  sampler(position.samples_done);  // checks
  position_ = position;
}

template <class Dataset>
void Shard<Dataset>::set_epoch(std::int64_t epoch) {
  if (epoch < 0) fail(Code::invalid_argument, "shard: epoch {}: must not be negative", epoch);
  if (epoch == position_.epoch) return;
  position_.epoch = epoch;
  position_.samples_done = 0;
}

template <class Dataset>
ShardBatch Shard<Dataset>::load(const Sampler& sampler, std::int64_t epoch,
                                std::int64_t step) const {
  ShardBatch batch;
  batch.weight = sampler.loss_weight(step);
  batch.samples = sampler.samples(epoch, step);
  batch.seed = step_seed(sampler_options_.seed, epoch, sampler.global_positions(step).begin,
                         sampler_options_.rank);
  const bool empty = batch.samples.empty();
  // Also an empty batch has the shape that the data set's samples have.
  auto examples = examples_of(empty ? std::vector<std::int64_t>{0} : batch.samples, epoch);
  batch.data = std::move(examples.data);
  if constexpr (requires { batch.target = examples.target; }) {
    batch.target = std::move(examples.target);
  }
  if (empty && options_.exact) {
    batch.data = batch.data.narrow(0, 0, 0);
    if (batch.target.defined()) batch.target = batch.target.narrow(0, 0, 0);
  }
  return batch;
}

template <class Dataset>
auto Shard<Dataset>::examples_of(const std::vector<std::int64_t>& samples,
                                 std::int64_t epoch) const {
  const std::vector<std::size_t> indices(samples.begin(), samples.end());
  if constexpr (SeededDataset<Dataset>) {
    std::vector<std::uint64_t> seeds;
    for (const std::int64_t sample : samples) {
      seeds.push_back(sample_seed(sampler_options_.seed, epoch, sample));
    }
    return internal::stacked(dataset_->get_batch(indices, seeds));
  } else {
    return internal::stacked(dataset_->get_batch(indices));
  }
}

}  // namespace lockstep
