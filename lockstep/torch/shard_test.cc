#include "lockstep/torch/shard.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Samples = std::vector<std::int64_t>;

Samples up_to(std::int64_t count) {
  Samples result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

std::int64_t threads_now() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

// Sample i is the vector (i, i, i) with the target i.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(std::int64_t count) : sample_count(count) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto value = static_cast<std::int64_t>(index);
    return {torch::full({3}, static_cast<float>(value)), torch::tensor(value)};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(sample_count);
  }
  std::int64_t sample_count;
};

// The same with augmentation: draws are added, and odd samples take longer than even ones.
struct Augmented : Numbers {
  using Numbers::Numbers;
  std::vector<torch::data::Example<>> get_batch(c10::ArrayRef<std::size_t> samples,
                                                c10::ArrayRef<std::uint64_t> seeds) {
    std::vector<torch::data::Example<>> batch;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto random = at::make_generator<at::CPUGeneratorImpl>(seeds[i]);
      batch.push_back(get(samples[i]));
      batch.back().data += torch::rand({3}, random);
      if (samples[i] % 2 == 1) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return batch;
  }
};

Shard<Numbers> shard_of(Numbers& numbers, int rank, int ranks, const ShardOptions& options) {
  return {numbers, numbers.sample_count, rank, ranks, options};
}

Samples rest_of_epoch(Shard<Numbers>& shard) {
  Samples walked;
  for (auto& batch : shard) {
    walked.insert(walked.end(), batch.samples.begin(), batch.samples.end());
  }
  return walked;
}

struct Evaluation {
  std::int64_t samples;
  int ranks;
  std::int64_t batch;
  int workers;
};

class Exact : public testing::TestWithParam<Evaluation> {};

// S-NUM-10: over all ranks each sample is evaluated once, and all ranks are in every reduction,
// those of a step as well as those at the end.
TEST_P(Exact, SeesEachSampleOnceAndAllRanksReduce) {
  const auto [count, ranks, batch_samples, workers] = GetParam();
  const auto errors = run_ranks(ranks, Transport::shm, [&, count = count](Group& group) {
    Numbers numbers(count);
    Samples mine;
    auto totals = torch::zeros({3}, torch::kLong);  // samples, sum of targets, sum of data
    auto batches =
        shard(numbers, group,
              {.batch_per_rank = GetParam().batch, .exact = true, .workers = GetParam().workers});
    EXPECT_EQ(batches.padded(), 0);
    EXPECT_EQ(batches.dropped(), 0);
    for (auto& batch : batches) {
      EXPECT_EQ(batch.data.size(0), static_cast<std::int64_t>(batch.samples.size()));
      EXPECT_EQ(batch.data.size(1), 3);
      auto of_step = torch::stack({torch::tensor(batch.target.size(0)), batch.target.sum(),
                                   batch.data.select(1, 0).sum().to(torch::kLong)});
      group.all_reduce(of_step);
      totals += of_step;
      mine.insert(mine.end(), batch.samples.begin(), batch.samples.end());
    }
    group.barrier();
    const std::int64_t sum = count * (count - 1) / 2;
    EXPECT_TRUE(totals.equal(torch::tensor({count, sum, sum}))) << totals;
    std::ostringstream text;
    for (const auto sample : mine) text << sample << ' ';
    Samples all;
    for (const auto& of_rank : group.exchange(text.str())) {
      std::istringstream in(of_rank);
      for (std::int64_t sample; in >> sample;) all.push_back(sample);
    }
    EXPECT_EQ(sorted(all), up_to(count));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(SNum10, Exact,
                         testing::Values(Evaluation{22, 3, 8, 0}, Evaluation{22, 3, 8, 2},
                                         Evaluation{22, 3, 2, 2}, Evaluation{512, 2, 16, 2},
                                         Evaluation{2, 4, 8, 0}, Evaluation{2, 4, 8, 2},
                                         Evaluation{0, 3, 8, 0}, Evaluation{0, 3, 8, 2}));

// S-NUM-10, training: who has no sample takes part with one row of weight 0, and it is counted.
TEST(Shard, CountsWhatIsPaddedAndDropped) {
  Numbers numbers(2);
  double weights = 0;
  std::int64_t rows = 0;
  for (int rank = 0; rank < 4; ++rank) {
    auto batches = shard_of(numbers, rank, 4, {.batch = 8, .shuffle = false});
    EXPECT_EQ(batches.padded(), 2);
    for (auto& batch : batches) {
      rows += batch.data.size(0);
      weights += batch.weight;
      EXPECT_EQ(batch.weight, rank < 2 ? 2 : 0);
      EXPECT_EQ(batch.samples, rank < 2 ? Samples{rank} : Samples{});
    }
  }
  EXPECT_EQ(rows, 4);
  EXPECT_EQ(weights, 4);
  Numbers more(22);
  EXPECT_EQ(shard_of(more, 0, 3, {.batch_per_rank = 8}).padded(), 0);  // 8, 7 and 7
  EXPECT_EQ(shard_of(more, 0, 3, {.batch = 8, .drop_last = true}).dropped(), 6);
  EXPECT_EQ(shard_of(more, 0, 3, {.batch = 8, .drop_last = true}).steps(), 2);
}

TEST(Shard, KeepsTheGlobalBatchOrTheBatchOfARank) {
  Numbers numbers(48);
  for (const int ranks : {1, 2, 4}) {
    auto global = shard_of(numbers, 0, ranks, {.batch = 16});
    EXPECT_EQ(global.steps(), 3);
    EXPECT_EQ(global.begin()->samples.size(), 16u / static_cast<unsigned>(ranks));
    auto local = shard_of(numbers, 0, ranks, {.batch_per_rank = 6});
    EXPECT_EQ(local.steps(), 8 / ranks);
    EXPECT_EQ(local.begin()->samples.size(), 6u);
  }
  EXPECT_EQ(shard_of(numbers, 0, 1, {}).begin()->samples.size(), 48u);  // of 64
  EXPECT_EQ(shard_of(numbers, 1, 2, {.batch = 1 << 20}).begin()->samples.size(), 24u);
}

TEST(Shard, GivesTheSameWhateverTheWorkers) {
  Augmented numbers(70);
  std::vector<torch::Tensor> expected;
  for (const int workers : {0, 1, 2, 5}) {
    Shard<Augmented> batches(numbers, 70, 1, 2, {.batch = 16, .seed = 5, .workers = workers});
    std::vector<torch::Tensor> seen;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (auto& batch : batches) {
        EXPECT_EQ(sorted(batch.samples).size(), static_cast<std::size_t>(batch.data.size(0)));
        seen.push_back(batch.data.clone());
      }
    }
    EXPECT_EQ(seen.size(), 15u);
    if (workers == 0) expected = seen;
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i].equal(expected[i]));
  }
  EXPECT_FALSE(expected[0].equal(expected[5]));
}

TEST(Shard, WalksOneEpochAfterTheOther) {
  Numbers numbers(10);
  auto batches = shard_of(numbers, 0, 1, {.batch = 3, .epoch = 2});
  const auto second = rest_of_epoch(batches);
  EXPECT_EQ(batches.position().epoch, 3);
  const auto third = rest_of_epoch(batches);
  EXPECT_NE(second, third);
  batches.set_epoch(2);
  EXPECT_EQ(rest_of_epoch(batches), second);
  batches.set_epoch(3);
  EXPECT_EQ(rest_of_epoch(batches), third);
}

TEST(Shard, GoesOnAfterABreakUnlessToldOtherwise) {
  Numbers numbers(10);
  auto batches = shard_of(numbers, 0, 1, {.batch = 3, .shuffle = false, .workers = 2});
  for (auto& batch : batches) {
    EXPECT_THAT(batch.samples, ElementsAre(0, 1, 2));
    break;
  }
  EXPECT_EQ(batches.position().samples_done, 3);  // whatever was loaded ahead
  batches.set_epoch(0);                           // within it already
  EXPECT_EQ(batches.begin()->samples.front(), 3);
  batches.set_epoch(1);
  EXPECT_EQ(batches.position().samples_done, 0);
  EXPECT_EQ(rest_of_epoch(batches), up_to(10));
}

TEST(Shard, OfNothingIsEmptyEpochs) {
  Numbers numbers(0);
  auto batches = shard_of(numbers, 1, 2, {.workers = 2});
  EXPECT_EQ(batches.steps(), 0);
  EXPECT_THAT(rest_of_epoch(batches), IsEmpty());
  EXPECT_EQ(batches.position().epoch, 1);
  Numbers few(5);
  auto dropping = shard_of(few, 0, 1, {.batch = 8, .drop_last = true});
  EXPECT_THAT(rest_of_epoch(dropping), IsEmpty());
  EXPECT_EQ(dropping.dropped(), 5);
  EXPECT_EQ(dropping.position().epoch, 1);
}

// What a rank saw in one step.
struct Seen {
  Samples samples;
  torch::Tensor data;
  double loss;
  bool operator==(const Seen& other) const {
    return samples == other.samples && data.equal(other.data) && loss == other.loss;
  }
};

// What a checkpoint holds.
struct Saved {
  torch::Tensor weights = torch::full({3}, 0.5);
  std::string position;
};

// Trains a model of three weights with augmentation and dropout for `steps` steps, from `saved` on
// if it has a position; leaves there what a checkpoint would.
std::vector<std::vector<Seen>> train(int ranks, std::int64_t steps, Saved& saved) {
  std::vector<std::vector<Seen>> seen(static_cast<std::size_t>(ranks));
  const Saved start = saved;
  const auto errors = run_ranks(ranks, Transport::shm, [&](Group& group) {
    Augmented data(2000);
    auto weights = start.weights.clone();
    auto batches = shard(data, group, {.batch = 16, .seed = 9, .workers = 2});
    if (!start.position.empty()) batches.restore(position_of_json(start.position));
    std::int64_t step = 0;
    while (step < steps) {
      for (auto& batch : batches) {
        auto random = at::make_generator<at::CPUGeneratorImpl>(batch.seed);
        const auto kept = torch::rand(batch.data.sizes(), random).gt(0.3) * (batch.data / 2000);
        const auto error = kept.matmul(weights) - batch.target / 2000.0f;
        auto gradient = kept.t().matmul(error) * (2.0 * batch.weight / kept.size(0));
        group.all_reduce(gradient, Reduce::mean);
        weights -= gradient * 0.1;
        seen[static_cast<std::size_t>(group.rank())].push_back(
            {batch.samples, batch.data, error.square().mean().item<double>()});
        if (++step == steps) break;
      }
    }
    if (group.rank() == 0) saved = {weights, to_json(batches.position())};
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  return seen;
}

class Resume : public testing::TestWithParam<int> {};

constexpr std::int64_t kStepsPerEpoch = 125;

// S-CKPT-04, the same world: samples, augmentation, dropout and losses of every rank go on as if
// nothing had happened.
TEST_P(Resume, SameWorldGoesOnAsIfNothingHadHappened) {
  const std::int64_t stop = GetParam();
  const std::int64_t all = (stop / kStepsPerEpoch + 3) * kStepsPerEpoch;
  Saved whole, saved;
  const auto expected = train(2, all, whole);
  auto seen = train(2, stop, saved);
  const auto rest = train(2, all - stop, saved);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    seen[rank].insert(seen[rank].end(), rest[rank].begin(), rest[rank].end());
    EXPECT_TRUE(seen[rank] == expected[rank]) << "rank " << rank;
  }
  EXPECT_TRUE(saved.weights.equal(whole.weights));
  EXPECT_EQ(saved.position, whole.position);
}

// S-CKPT-04, another world: the epoch's samples each once, with the draws they would have had.
TEST_P(Resume, OtherWorldSeesTheRestOfTheEpochOnce) {
  const std::int64_t stop = GetParam();
  const std::int64_t all = (stop / kStepsPerEpoch + 1) * kStepsPerEpoch;
  Saved whole, saved;
  const auto expected = train(2, all, whole);
  const auto before = train(2, stop, saved);
  const auto after = train(4, all - stop, saved);
  // By epoch and sample.
  using Drawn = std::multimap<std::pair<std::int64_t, std::int64_t>, torch::Tensor>;
  const auto collect = [](const std::vector<std::vector<Seen>>& of_ranks, std::int64_t first_step,
                          Drawn& drawn) {
    for (const auto& of_rank : of_ranks) {
      std::int64_t step = first_step;
      for (const Seen& seen : of_rank) {
        const std::int64_t epoch = step++ / kStepsPerEpoch;
        for (std::size_t i = 0; i < seen.samples.size(); ++i) {
          drawn.emplace(std::pair(epoch, seen.samples[i]), seen.data[static_cast<long>(i)]);
        }
      }
    }
  };
  Drawn once, resumed;
  collect(expected, 0, once);
  collect(before, 0, resumed);
  collect(after, stop, resumed);
  ASSERT_EQ(resumed.size(), static_cast<std::size_t>(all * 16));
  EXPECT_TRUE(std::equal(once.begin(), once.end(), resumed.begin(), [](auto& a, auto& b) {
    return a.first == b.first && a.second.equal(b.second);
  }));
}

INSTANTIATE_TEST_SUITE_P(SCkpt04, Resume, testing::Values(60, 125, 200));

TEST(Shard, RestoresOnAnyRanksAndBatches) {
  Numbers numbers(97);
  auto first = shard_of(numbers, 0, 1, {.batch = 10, .seed = 3});
  Samples before;
  for (auto& batch : first) {
    before.insert(before.end(), batch.samples.begin(), batch.samples.end());
    if (before.size() == 30) break;
  }
  const auto position = position_of_json(to_json(first.position()));
  for (const int ranks : {1, 3, 5}) {
    for (const std::int64_t batch : {5, 16, 500}) {
      Samples all = before;
      for (int rank = 0; rank < ranks; ++rank) {
        auto rest = shard_of(numbers, rank, ranks, {.batch = batch, .seed = 3});
        rest.restore(position);
        const auto mine = rest_of_epoch(rest);
        all.insert(all.end(), mine.begin(), mine.end());
        EXPECT_EQ(rest.position().epoch, 1);
      }
      EXPECT_EQ(sorted(all), up_to(97));
    }
  }
}

TEST(Shard, RefusesAPositionInAnotherOrder) {
  Numbers numbers(97);
  auto batches = shard_of(numbers, 0, 1, {.batch = 10, .seed = 3});
  const auto said = [&](const DataPosition& position) -> std::string {
    try {
      batches.restore(position);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(said({.sample_count = 98, .seed = 3}), HasSubstr("98 samples, this data set has 97"));
  EXPECT_THAT(said({.sample_count = 97, .seed = 4}), HasSubstr("seed 4"));
  EXPECT_THAT(said({.sample_count = 97, .seed = 3, .shuffle = false}), HasSubstr("not shuffled"));
  EXPECT_THAT(said({.samples_done = 98, .sample_count = 97, .seed = 3}), HasSubstr("98"));
  EXPECT_EQ(said({.epoch = 4, .samples_done = 50, .sample_count = 97, .seed = 3}), "");
}

struct Failing : Numbers {
  using Numbers::Numbers;
  torch::data::Example<> get(std::size_t index) override {
    if (index == broken) throw std::out_of_range("sample " + std::to_string(index));
    return Numbers::get(index);
  }
  std::size_t broken = 7;
};

TEST(Shard, ThrowsWhatTheDataSetThrewInItsStepAndCanGoOn) {
  for (const int workers : {0, 1, 3}) {
    Failing numbers(20);
    Shard<Failing> batches(numbers, 20, 0, 1, {.batch = 2, .shuffle = false, .workers = workers});
    int steps = 0;
    try {
      for ([[maybe_unused]] auto& batch : batches) ++steps;
      ADD_FAILURE() << "nothing thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "sample 7");
    }
    EXPECT_EQ(steps, 3);
    EXPECT_EQ(batches.position().samples_done, 6);
    numbers.broken = 100;
    EXPECT_THAT(batches.begin()->samples, ElementsAre(6, 7));
  }
}

void run_a_parallel_operator() {
  (void)torch::ones({1 << 18}).add_(1).sum();
}

struct Parallel : Numbers {
  using Numbers::Numbers;
  torch::data::Example<> get(std::size_t index) override {
    run_a_parallel_operator();
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return Numbers::get(index);
  }
  std::mutex mutex;
  std::set<std::thread::id> threads;
};

// A thread that has ended is listed for a moment longer.
bool threads_come_to(std::int64_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads_now() != count && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return threads_now() == count;
}

// S-PERF-02: workers are the only threads that they bring, and they go with the loop.
TEST(Shard, WorkersBringNoThreadsOfTheirOwn) {
  const int threads_before = at::get_num_threads();
  at::set_num_threads(4);
  run_a_parallel_operator();  // this thread has its team now
  const std::int64_t base = threads_now();
  std::thread([base] {
    run_a_parallel_operator();
    EXPECT_GE(threads_now(), base + 4);  // what a thread brings without further ado
  }).join();
  EXPECT_TRUE(threads_come_to(base)) << threads_now() << " " << base;
  for (const int workers : {1, 3}) {
    Parallel numbers(4000);
    Shard<Parallel> batches(numbers, 4000, 0, 1, {.batch = 4, .workers = workers});
    for ([[maybe_unused]] auto& batch : batches) {
      const std::lock_guard lock(numbers.mutex);
      if (static_cast<int>(numbers.threads.size()) == workers) break;
    }
    EXPECT_EQ(static_cast<int>(numbers.threads.size()), workers);
    auto under_way = batches.begin();
    EXPECT_TRUE(threads_come_to(base + workers)) << threads_now() << " " << base;
    while (under_way != batches.end() && batches.position().samples_done < 400) ++under_way;
    EXPECT_TRUE(threads_come_to(base + workers)) << threads_now() << " " << base;
    { auto ended = std::move(under_way); }
    EXPECT_TRUE(threads_come_to(base)) << threads_now() << " " << base;
  }
  // The calling thread keeps its number, and so do threads to come.
  EXPECT_EQ(at::get_num_threads(), 4);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 4); }).join();
  at::set_num_threads(threads_before);
}

struct Batched : torch::data::datasets::BatchDataset<Batched, torch::data::TensorExample> {
  torch::data::TensorExample get_batch(c10::ArrayRef<std::size_t> samples) override {
    return {torch::ones({static_cast<std::int64_t>(samples.size()), 2})};
  }
  torch::optional<std::size_t> size() const override { return 5; }
};

TEST(Shard, TakesDataSetsOfWholeBatchesWithoutTargetsAndMapped) {
  Batched batched;
  Shard<Batched> batches(batched, 5, 1, 2, {.batch = 4, .exact = true});
  Samples rows;
  for (auto& batch : batches) {
    rows.push_back(batch.data.size(0));
    EXPECT_FALSE(batch.target.defined());
  }
  EXPECT_THAT(rows, ElementsAre(2, 0));
  auto mapped = Numbers(5).map(torch::data::transforms::Stack<>());
  const auto errors = run_ranks(1, Transport::shm, [&](Group& group) {
    auto of_mapped = shard(mapped, group, {.batch = 5, .shuffle = false});
    EXPECT_TRUE(of_mapped.begin()->target.equal(torch::arange(5)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Shard, RefusesWhatCannotBe) {
  Numbers numbers(20);
  const auto said = [&](const ShardOptions& options) -> std::string {
    try {
      shard_of(numbers, 0, 4, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(said({.batch = 3}), HasSubstr("a global batch of 3 for 4 ranks"));
  EXPECT_THAT(said({.batch = 8, .batch_per_rank = 2}), HasSubstr("give one of them"));
  EXPECT_THAT(said({.batch = -1}), HasSubstr("batch -1"));
  EXPECT_THAT(said({.batch_per_rank = kGlobalBatchMax}), HasSubstr("must be at most"));
  EXPECT_THAT(said({.batch = 2 * kGlobalBatchMax}), HasSubstr("must be in"));
  EXPECT_THAT(said({.epoch = -1}), HasSubstr("epoch -1"));
  EXPECT_THAT(said({.drop_last = true, .exact = true}), HasSubstr("contradict"));
  EXPECT_THAT(said({.workers = 257}), HasSubstr("257 workers"));
  EXPECT_THAT(said({.workers = 1, .prefetch = 5000}), HasSubstr("prefetch 5000"));
  EXPECT_EQ(said({.batch = 4}), "");
}

}  // namespace
}  // namespace lockstep
