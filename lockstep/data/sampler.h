// Which samples a rank trains on: a pure function of seed, epoch and position, the same on every
// machine, compiler and rank count. The ranks' samples of one step together are the global batch,
// whatever the number of ranks; over an epoch each sample comes exactly once. What is left of an
// epoch can be walked in other batches and by another number of ranks.
//
// Thread rule: everything here is immutable or a value; const calls are free to use anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/slice.h"

namespace lockstep {

// A permutation of [0, count) in constant memory: a Feistel network of 8 rounds over the smallest
// power-of-two domain of at least max(count, 4) elements, walked until it lands inside [0, count)
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002: under 2 walks
// expected).
//
//   mix(x):      x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb;
//                x ^= x >> 31                         (the finalizer of SplitMix64)
//   key(i):      mix(mix(seed + 0x9e3779b97f4a7c15) + epoch · 0x9e3779b97f4a7c15
//                + (i + 1) · 0xd1b54a32d192ed03)      i = 0 … 7; all sums modulo 2^64
//   a value:     high ‖ low, low the lower ⌈bits / 2⌉ bits, high the ⌊bits / 2⌋ above
//   round i:     even i: high ^= mix(low + key(i)), odd i: low ^= mix(high + key(i)), cut to width
//
// This definition is part of the checkpoint and reproducibility promise: it never changes.
class Permutation {
 public:
  // `count` at least 0.
  Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch);

  // The sample at `position`; both in [0, count).
  std::int64_t operator()(std::int64_t position) const;

 private:
  static constexpr int kRounds = 8;
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t count_;
  int low_bits_ = 1;
  int high_bits_ = 1;
  std::uint64_t keys_[kRounds] = {};
};

// Seeds for random draws, as much part of the promise as the order. `sample`: a sample's number in
// the data set. One seed for each seed, epoch and sample, so that what is drawn for a sample
// (augmentation) does not depend on batches, ranks, threads, or where a run was resumed.
//
//   mix(mix(mix(seed + 0x9e3779b97f4a7c15) + epoch · 0x9e3779b97f4a7c15)
//       + (sample + 1) · 0xd1b54a32d192ed03)
std::uint64_t sample_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

// One seed for each seed, epoch, rank and first position of a global batch, for what is drawn in a
// step (dropout).
//
//   mix(sample_seed(seed + 1, epoch, position) + (rank + 1) · 0x9e3779b97f4a7c15)
std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t position, int rank);

// A global batch is at most this large, so that no arithmetic on positions can overflow.
constexpr std::int64_t kGlobalBatchMax = std::int64_t{1} << 40;

struct SamplerOptions {
  std::int64_t sample_count = 0;  // samples in the data set
  std::int64_t global_batch = 1;  // samples of one step on all ranks together; at least 1
  std::int64_t samples_done = 0;  // positions of the epoch before the first step
  int rank = 0;
  int ranks = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  // leave out the last global batch of an epoch if it is not full
};

class Sampler {
 public:
  // Throws Error(invalid_argument) that names the value that cannot be.
  explicit Sampler(const SamplerOptions& options);

  // Of a whole epoch.
  std::int64_t steps_per_epoch() const;
  // From samples_done to the end of the epoch: what `step` counts below, from 0.
  std::int64_t steps() const;
  // Samples that these steps leave out, because they do not fill a batch and drop_last is set.
  std::int64_t dropped() const;
  // How often, in these steps, a rank has no sample. Whoever must give every rank something pads
  // with as many.
  std::int64_t empty_shares() const;

  // The positions of this step on all ranks together: global_batch but for a short last batch.
  Range global_positions(std::int64_t step) const;
  std::int64_t global_count(std::int64_t step) const { return global_positions(step).count; }
  // This rank's positions within the epoch; may be empty in a short last batch.
  Range positions(std::int64_t step) const;
  // This rank's samples of that step, in order.
  std::vector<std::int64_t> samples(std::int64_t epoch, std::int64_t step) const;
  // What this rank's mean loss is to be multiplied by, so that the mean over ranks of the gradients
  // is the mean over the samples of the global batch: 1 when every rank has as many samples.
  double loss_weight(std::int64_t step) const;

 private:
  Range left() const;
  std::int64_t batches_in(std::int64_t samples) const;

  SamplerOptions options_;
};

}  // namespace lockstep
