#include "lockstep/data/sampler.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

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
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const std::uint64_t base = mix(seed + kGolden) + epoch * kGolden;
  for (int i = 0; i < kRounds; ++i) {
    keys_[i] = mix(base + static_cast<std::uint64_t>(i + 1) * 0xd1b54a32d192ed03u);
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

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.sample_count < 0) {
    fail(Code::invalid_argument, "sampler: {} samples: must not be negative", options.sample_count);
  }
  if (options.global_batch < 1) {
    fail(Code::invalid_argument, "sampler: a global batch of {}: must be at least 1",
         options.global_batch);
  }
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    fail(Code::invalid_argument, "sampler: rank {} of {} ranks: must be in [0, ranks)",
         options.rank, options.ranks);
  }
}

std::int64_t Sampler::steps_per_epoch() const {
  return options_.drop_last ? options_.sample_count / options_.global_batch
                            : chunks_in(options_.sample_count, options_.global_batch);
}

std::int64_t Sampler::global_count(std::int64_t step) const {
  return chunk_of({0, options_.sample_count}, options_.global_batch, step).count;
}

Range Sampler::positions(std::int64_t step) const {
  LOCKSTEP_CHECK(step >= 0 && step < steps_per_epoch());
  const Range batch = chunk_of({0, options_.sample_count}, options_.global_batch, step);
  return slice_of(batch, options_.ranks, options_.rank);
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

}  // namespace lockstep
