#include "lockstep/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> all_of(const Permutation& permutation, std::int64_t count) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(permutation(i));
  return result;
}

std::vector<std::int64_t> up_to(std::int64_t count) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST(Permutation, HoldsEachSampleOnce) {
  for (std::int64_t count = 0; count < 300; ++count) {
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      auto samples = all_of(Permutation(count, 7, epoch), count);
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples, up_to(count));
    }
  }
  auto samples = all_of(Permutation(60'000, 1, 1), 60'000);
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(samples, up_to(60'000));
}

TEST(Permutation, IsTheWrittenOne) {
  EXPECT_THAT(all_of(Permutation(10, 0, 0), 10),
              testing::ElementsAre(3, 4, 0, 1, 8, 9, 6, 5, 7, 2));
  EXPECT_THAT(all_of(Permutation(10, 42, 3), 10),
              testing::ElementsAre(8, 3, 6, 7, 9, 4, 0, 1, 2, 5));
  EXPECT_EQ(Permutation(std::int64_t{1} << 40, 5, 6)(123'456'789'012), 1086240592124);
}

// Each (position, sample) pair of a uniform permutation is equally likely: chi-square over seeds
// and over epochs, each with (n - 1)² degrees of freedom.
TEST(Permutation, PutsEverySampleEverywhereEquallyOften) {
  for (const std::int64_t count : {3, 5, 10, 17, 64}) {
    for (const bool vary_epoch : {false, true}) {
      constexpr int kTrials = 20'000;
      std::vector<int> seen(static_cast<std::size_t>(count * count));
      for (std::uint64_t t = 0; t < kTrials; ++t) {
        const Permutation permutation(count, vary_epoch ? 3 : t, vary_epoch ? t : 3);
        for (std::int64_t i = 0; i < count; ++i) {
          ++seen[static_cast<std::size_t>(i * count + permutation(i))];
        }
      }
      const double expected = static_cast<double>(kTrials) / static_cast<double>(count);
      double chi_square = 0;
      for (const int times : seen) chi_square += (times - expected) * (times - expected) / expected;
      const double freedom = static_cast<double>((count - 1) * (count - 1));
      EXPECT_NEAR(chi_square, freedom, 6 * std::sqrt(2 * freedom)) << count << " " << vary_epoch;
    }
  }
}

TEST(Permutation, NeighboursInOneEpochAreFarApart) {
  const std::int64_t count = 60'000;
  const auto samples = all_of(Permutation(count, 1, 0), count);
  double distance = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    distance += std::abs(static_cast<double>(samples[i] - samples[i - 1]));
  }
  EXPECT_NEAR(distance / static_cast<double>(count - 1), static_cast<double>(count) / 3, 300);
}

struct Shape {
  std::int64_t count;
  std::int64_t batch;
};

class EveryRankCount : public testing::TestWithParam<Shape> {};

// S-NUM-10: no sample twice, none lost, and each step's union is the same on every rank count.
TEST_P(EveryRankCount, SharesTheGlobalBatchesOfOneRank) {
  const auto [count, batch] = GetParam();
  for (const bool drop_last : {false, true}) {
    const Sampler one({.sample_count = count, .global_batch = batch, .drop_last = drop_last});
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::vector<std::int64_t> epoch_samples;
      for (std::int64_t step = 0; step < one.steps_per_epoch(); ++step) {
        std::vector<std::int64_t> together;
        double weights = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Sampler sampler({.sample_count = count,
                                 .global_batch = batch,
                                 .rank = rank,
                                 .ranks = ranks,
                                 .drop_last = drop_last});
          EXPECT_EQ(sampler.steps_per_epoch(), one.steps_per_epoch());
          const auto samples = sampler.samples(2, step);
          EXPECT_LE(samples.size(), static_cast<std::size_t>((batch + ranks - 1) / ranks));
          together.insert(together.end(), samples.begin(), samples.end());
          weights += sampler.loss_weight(step);
        }
        EXPECT_EQ(together, one.samples(2, step));
        EXPECT_EQ(static_cast<std::int64_t>(together.size()), one.global_count(step));
        EXPECT_NEAR(weights, ranks, 1e-9);
        epoch_samples.insert(epoch_samples.end(), together.begin(), together.end());
      }
      const std::int64_t expected = drop_last ? count / batch * batch : count;
      std::sort(epoch_samples.begin(), epoch_samples.end());
      EXPECT_EQ(static_cast<std::int64_t>(epoch_samples.size()), expected);
      EXPECT_EQ(std::unique(epoch_samples.begin(), epoch_samples.end()), epoch_samples.end());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryRankCount,
                         testing::Values(Shape{22, 8}, Shape{512, 16}, Shape{2, 4}, Shape{0, 4},
                                         Shape{1, 1}, Shape{1000, 64}, Shape{97, 9}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.count) + "by" +
                                  std::to_string(shape.param.batch);
                         });

TEST(Sampler, EpochsAndSeedsDifferAndUnshuffledIsInOrder) {
  const Sampler sampler({.sample_count = 100, .global_batch = 100});
  const Sampler other({.sample_count = 100, .global_batch = 100, .seed = 1});
  EXPECT_NE(sampler.samples(0, 0), sampler.samples(1, 0));
  EXPECT_NE(sampler.samples(0, 0), other.samples(0, 0));
  EXPECT_EQ(sampler.samples(5, 0), sampler.samples(5, 0));
  const Sampler plain({.sample_count = 100, .global_batch = 100, .shuffle = false});
  EXPECT_EQ(plain.samples(3, 0), up_to(100));
}

// S-CKPT-04: what is left of an epoch, walked in other batches by other numbers of ranks.
TEST(Sampler, GoesOnWithinAnEpoch) {
  const std::int64_t count = 97;
  const auto order = Sampler({.sample_count = count, .global_batch = count}).samples(3, 0);
  for (std::int64_t done = 0; done <= count; ++done) {
    for (const std::int64_t batch : {4, 9, 200}) {
      for (const int ranks : {1, 4}) {
        std::vector<std::int64_t> walked(order.begin(), order.begin() + done);
        std::int64_t empty_shares = 0;
        std::int64_t steps = 0;
        for (std::int64_t step = 0; step == 0 || step < steps; ++step) {
          for (int rank = 0; rank < ranks; ++rank) {
            const Sampler sampler({.sample_count = count,
                                   .global_batch = batch,
                                   .samples_done = done,
                                   .rank = rank,
                                   .ranks = ranks});
            steps = sampler.steps();
            if (steps == 0) break;
            const auto samples = sampler.samples(3, step);
            walked.insert(walked.end(), samples.begin(), samples.end());
            if (samples.empty()) ++empty_shares;
            if (step + 1 == steps && rank + 1 == ranks) {
              EXPECT_EQ(sampler.empty_shares(), empty_shares);
            }
          }
        }
        EXPECT_EQ(walked, order);
      }
    }
  }
}

TEST(Sampler, CountsWhatIsDroppedAndWhatIsEmpty) {
  const Sampler dropping({.sample_count = 22, .global_batch = 8, .drop_last = true});
  EXPECT_EQ(dropping.steps(), 2);
  EXPECT_EQ(dropping.dropped(), 6);
  EXPECT_EQ(Sampler({.sample_count = 22, .global_batch = 8}).dropped(), 0);
  const Sampler even({.sample_count = 512, .global_batch = 16, .ranks = 2, .drop_last = true});
  EXPECT_EQ(even.dropped(), 0);  // an even split loses no last batch
  EXPECT_EQ(even.steps(), 32);
  EXPECT_EQ(Sampler({.sample_count = 2, .global_batch = 8, .ranks = 4}).empty_shares(), 2);
  EXPECT_EQ(Sampler({.sample_count = 7, .global_batch = 2, .ranks = 3}).empty_shares(), 3 + 2);
  EXPECT_EQ(Sampler({.sample_count = 0, .global_batch = 8, .ranks = 4}).empty_shares(), 0);
}

TEST(Seeds, AreTheWrittenOnes) {
  EXPECT_EQ(sample_seed(0, 0, 0), 13693419961088809291u);
  EXPECT_EQ(sample_seed(42, 3, 12345), 2016538450062454707u);
  EXPECT_EQ(step_seed(42, 3, 12345, 2), 4183469730556860485u);
}

TEST(Seeds, DifferAndAreEven) {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      for (std::int64_t at = 0; at < 1000; ++at) {
        seeds.push_back(sample_seed(seed, epoch, at));
        for (int rank = 0; rank < 3; ++rank) seeds.push_back(step_seed(seed, epoch, at, rank));
      }
    }
  }
  double mean = 0;
  for (const std::uint64_t seed : seeds) mean += std::ldexp(static_cast<double>(seed), -64);
  EXPECT_NEAR(mean / static_cast<double>(seeds.size()), 0.5, 0.01);
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(std::unique(seeds.begin(), seeds.end()), seeds.end());
}

TEST(Sampler, RefusesWhatCannotBe) {
  EXPECT_THROW(Sampler({.sample_count = 1, .global_batch = kGlobalBatchMax + 1}), Error);
  EXPECT_THROW(Sampler({.sample_count = 5, .samples_done = 6}), Error);
  EXPECT_THROW(Sampler({.sample_count = 5, .samples_done = -1}), Error);
  EXPECT_THROW(Sampler({.sample_count = -1}), Error);
  EXPECT_THROW(Sampler({.sample_count = 1, .global_batch = 0}), Error);
  EXPECT_THROW(Sampler({.sample_count = 1, .rank = 2, .ranks = 2}), Error);
}

}  // namespace
}  // namespace lockstep
