// What lockstep::shard costs per batch, beside a plain loop that makes the same calls and beside
// LibTorch's own loader.
//
//   loader [--wait-us US]    US: how long a load waits, as for a file; 0 unless given
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>

#include "lockstep/torch/shard.h"

namespace {

constexpr std::int64_t kSamples = 64'000;
constexpr std::int64_t kBatch = 64;
constexpr int kRounds = 7;

// 64 samples are one narrow() of what is in memory: next to nothing but the loader is measured.
struct InMemory : torch::data::datasets::BatchDataset<InMemory, torch::data::Example<>> {
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> samples) override {
    if (wait_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
    const auto count = static_cast<std::int64_t>(samples.size());
    return {data.narrow(0, 0, count), target.narrow(0, 0, count)};
  }
  torch::optional<std::size_t> size() const override { return kSamples; }

  torch::Tensor data = torch::zeros({kBatch, 784});
  torch::Tensor target = torch::zeros({kBatch}, torch::kLong);
  int wait_us = 0;
};

double us_per_batch(std::int64_t batches, const std::function<void()>& walk) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    walk();
    rounds.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2] / static_cast<double>(batches);
}

}  // namespace

int main(int argc, char** argv) {
  InMemory dataset;
  if (argc == 3 && std::string_view(argv[1]) == "--wait-us") dataset.wait_us = std::atoi(argv[2]);
  std::int64_t rows = 0;
  const auto report = [](const char* what, double us) { std::printf("%-28s%8.2f\n", what, us); };
  std::printf("%-28s%8s  median of %d epochs of %ld batches of %ld\n", "", "us/batch", kRounds,
              static_cast<long>(kSamples / kBatch), static_cast<long>(kBatch));
  report("plain loop", us_per_batch(kSamples / kBatch, [&] {
           std::vector<std::size_t> samples(kBatch);
           for (std::int64_t first = 0; first < kSamples; first += kBatch) {
             for (std::size_t i = 0; i < samples.size(); ++i) {
               samples[i] = static_cast<std::size_t>(first) + i;
             }
             rows += dataset.get_batch(samples).data.size(0);
           }
         }));
  for (const std::size_t workers : {0, 1, 2}) {
    auto batches = torch::data::make_data_loader(
        dataset, torch::data::samplers::SequentialSampler(kSamples),
        torch::data::DataLoaderOptions().batch_size(kBatch).workers(workers));
    const double us = us_per_batch(kSamples / kBatch, [&] {
      for (auto& batch : *batches) rows += batch.data.size(0);
    });
    report(fmt::format("torch::data, {} workers", workers).c_str(), us);
  }
  for (const bool shuffle : {false, true}) {
    for (const int workers : {0, 1, 2}) {
      lockstep::Shard<InMemory> batches(dataset, kSamples, 0, 1,
                                        {.batch = kBatch, .shuffle = shuffle, .workers = workers});
      const double us = us_per_batch(kSamples / kBatch, [&] {
        for (auto& batch : batches) rows += batch.data.size(0);
      });
      report(fmt::format("shard, {} workers{}", workers, shuffle ? ", shuffled" : "").c_str(), us);
    }
  }
  return rows > 0 ? 0 : 1;
}
