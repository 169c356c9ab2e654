#include "lockstep/data/sampler.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
constexpr std::uint64_t kStride = 0xd1b54a32d192ed03u;

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch)
    : count_(static_cast<std::uint64_t>(count)) {
  LOCKSTEP_CHECK(count >= 0);
  const int bits =
      std::max(2, static_cast<int>(std::bit_width(std::max<std::uint64_t>(count_, 1) - 1)));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
  const std::uint64_t base = mix(seed + kGolden) + epoch * kGolden;
  for (int i = 0; i < kRounds; ++i) {
    keys_[i] = mix(base + static_cast<std::uint64_t>(i + 1) * kStride);
  }
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
  std::uint64_t low = value & low_mask;
  std::uint64_t high = value >> low_bits_;
  for (int i = 0; i < kRounds; i += 2) {
    high ^= mix(low + keys_[i]) & high_mask;
    low ^= mix(high + keys_[i + 1]) & low_mask;
  }
  return high << low_bits_ | low;
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  auto value = static_cast<std::uint64_t>(position);
  LOCKSTEP_CHECK(value < count_);
  // Ends: the cycle that `position` lies on leads back into [0, count) at the latest at `position`.
  do {
    value = encrypt(value);
  } while (value >= count_);
  return static_cast<std::int64_t>(value);
}

std::uint64_t sample_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const std::uint64_t base = mix(seed + kGolden) + static_cast<std::uint64_t>(epoch) * kGolden;
  return mix(mix(base) + (static_cast<std::uint64_t>(sample) + 1) * kStride);
}

std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t position, int rank) {
  return mix(sample_seed(seed + 1, epoch, position) +
             (static_cast<std::uint64_t>(rank) + 1) * kGolden);
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.sample_count < 0) {
    fail(Code::invalid_argument, "sampler: {} samples: must not be negative", options.sample_count);
  }
  if (options.global_batch < 1 || options.global_batch > kGlobalBatchMax) {
    fail(Code::invalid_argument, "sampler: a global batch of {}: must be in [1, {}]",
         options.global_batch, kGlobalBatchMax);
  }
  if (options.samples_done < 0 || options.samples_done > options.sample_count) {
    fail(Code::invalid_argument, "sampler: {} samples done of {}: must be in [0, {}]",
         options.samples_done, options.sample_count, options.sample_count);
  }
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    fail(Code::invalid_argument, "sampler: rank {} of {} ranks: must be in [0, ranks)",
         options.rank, options.ranks);
  }
}

std::int64_t Sampler::steps_per_epoch() const {
  return batches_in(options_.sample_count);
}

std::int64_t Sampler::steps() const {
  return batches_in(left().count);
}

std::int64_t Sampler::dropped() const {
  return options_.drop_last ? left().count % options_.global_batch : 0;
}

std::int64_t Sampler::empty_shares() const {
  const std::int64_t all = steps();
  if (all == 0) return 0;
  const auto empty = [&](std::int64_t step) {
    return std::max<std::int64_t>(0, options_.ranks - global_count(step));
  };
  return (all - 1) * empty(0) + empty(all - 1);
}

Range Sampler::global_positions(std::int64_t step) const {
  LOCKSTEP_CHECK(step >= 0 && step < steps());
  return chunk_of(left(), options_.global_batch, step);
}

Range Sampler::positions(std::int64_t step) const {
  return slice_of(global_positions(step), options_.ranks, options_.rank);
}

std::vector<std::int64_t> Sampler::samples(std::int64_t epoch, std::int64_t step) const {
  const Permutation permutation(options_.sample_count, options_.seed,
                                static_cast<std::uint64_t>(epoch));
  const Range range = positions(step);
  std::vector<std::int64_t> result(static_cast<std::size_t>(range.count));
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t position = range.begin + i;
    result[static_cast<std::size_t>(i)] = options_.shuffle ? permutation(position) : position;
  }
  return result;
}

double Sampler::loss_weight(std::int64_t step) const {
  return static_cast<double>(positions(step).count) * options_.ranks /
         static_cast<double>(global_count(step));
}

Range Sampler::left() const {
  return {options_.samples_done, options_.sample_count - options_.samples_done};
}

std::int64_t Sampler::batches_in(std::int64_t samples) const {
  return options_.drop_last ? samples / options_.global_batch
                            : chunks_in(samples, options_.global_batch);
}

}  // namespace lockstep
