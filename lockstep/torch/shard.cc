#include "lockstep/torch/shard.h"

namespace lockstep::internal {

namespace {

constexpr std::int64_t kDefaultBatch = 64;

std::int64_t global_batch_of(const ShardOptions& options, int ranks) {
  if (options.batch < 0 || options.batch_per_rank < 0 ||
      (options.batch > 0 && options.batch_per_rank > 0)) {
    fail(Code::invalid_argument,
         "shard: batch {} and batch_per_rank {}: give one of them, at least 1, and leave the "
         "other 0",
         options.batch, options.batch_per_rank);
  }
  if (options.batch_per_rank == 0) return options.batch > 0 ? options.batch : kDefaultBatch;
  if (options.batch_per_rank > kGlobalBatchMax / ranks) {
    fail(Code::invalid_argument, "shard: batch_per_rank {} for {} ranks: must be at most {}",
         options.batch_per_rank, ranks, kGlobalBatchMax / ranks);
  }
  return options.batch_per_rank * ranks;
}

}  // namespace

std::int64_t checked_global_batch(const ShardOptions& options, int ranks) {
  if (options.epoch < 0) {
    fail(Code::invalid_argument, "shard: epoch {}: must not be negative", options.epoch);
  }
  if (options.workers < 0 || options.workers > kWorkersMax) {
    fail(Code::invalid_argument, "shard: {} workers: must be in [0, {}]", options.workers,
         kWorkersMax);
  }
  if (options.prefetch < 0 || options.prefetch > kPrefetchMax) {
    fail(Code::invalid_argument, "shard: prefetch {}: must be in [0, {}]", options.prefetch,
         kPrefetchMax);
  }
  if (options.exact && options.drop_last) {
    fail(Code::invalid_argument,
         "shard: exact and drop_last contradict each other: exact leaves out no sample; set one");
  }
  const std::int64_t global_batch = global_batch_of(options, ranks);
  if (global_batch < ranks) {
    fail(Code::invalid_argument,
         "shard: a global batch of {} for {} ranks: each rank needs at least one sample; raise the "
         "batch",
         global_batch, ranks);
  }
  return global_batch;
}

void check_same_order(const DataPosition& position, const DataPosition& now) {
  if (position.sample_count != now.sample_count) {
    fail(Code::invalid_argument,
         "shard: the position is one among {} samples, this data set has {}: restore it with the "
         "data set that it was saved with",
         position.sample_count, now.sample_count);
  }
  if (position.seed != now.seed || position.shuffle != now.shuffle) {
    fail(Code::invalid_argument,
         "shard: the position is one in the order of seed {}, {}; this shard has seed {}, {}: the "
         "samples that are left would not be the same",
         position.seed, position.shuffle ? "shuffled" : "not shuffled", now.seed,
         now.shuffle ? "shuffled" : "not shuffled");
  }
  if (position.epoch < 0) {
    fail(Code::invalid_argument, "shard: a position in epoch {}: must not be negative",
         position.epoch);
  }
}

}  // namespace lockstep::internal
