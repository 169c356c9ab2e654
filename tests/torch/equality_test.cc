// N ranks train as one process does: the ready-made models, 50 steps, each optimizer; plainly, and
// with accumulation, unequal shares and parameters that are used now and then all at once.
//
// In f64, where the order of additions changes the 16th digit: whatever else differs shows.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <map>

#include "lockstep/base/slice.h"
#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/train/model.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
namespace functional = torch::nn::functional;

constexpr std::int64_t kClasses = 10;
constexpr int kSide = 8;  // of images

// LOCKSTEP_PROVE_ALL=1: 50 steps of resnet18 too, which takes minutes in f64.
int steps_of(const std::string& model) {
  return model != "resnet18" || std::getenv("LOCKSTEP_PROVE_ALL") != nullptr ? 50 : 4;
}

// A model, and a layer that only some steps use.
struct Net : torch::nn::Module {
  explicit Net(const std::string& name) {
    torch::manual_seed(3);
    train::TrainSettings settings;
    settings.model = name;
    settings.norm = "group";
    settings.layers = 2;
    settings.width = settings.vocabulary = settings.length = 16;
    is_text = name == "gpt";
    const train::InputShape images{1, kSide, kSide, kClasses};
    model = register_module("model",
                            train::make_model(settings, is_text ? train::InputShape{} : images));
    spare = register_module("spare", torch::nn::Linear(4, 1));
    to(torch::kDouble);
  }
  bool is_text = false;
  std::shared_ptr<train::Model> model;
  torch::nn::Linear spare{nullptr};
};

struct Batch {
  torch::Tensor input, target;
};
// Functions of the numbers of the samples alone.
Batch batch_of(const Net& net, std::int64_t first, Range rows) {
  const auto samples = torch::arange(first + rows.begin, first + rows.end(), torch::kLong);
  if (net.is_text) {
    const auto tokens =
        (samples.unsqueeze(1) * 7 + torch::arange(17, torch::kLong) * (samples.unsqueeze(1) + 3))
            .remainder(16);
    return {tokens.narrow(1, 0, 16), tokens.narrow(1, 1, 16).reshape({-1})};
  }
  const auto angle = samples.to(torch::kDouble).unsqueeze(1) * 1.3 +
                     torch::arange(kSide * kSide, torch::kDouble) * 0.37;
  return {torch::sin(angle * angle).view({-1, 1, kSide, kSide}), samples.remainder(kClasses)};
}

struct Case {
  std::string model;
  std::string optimizer;
  bool everything = false;  // accumulation, unequal shares, a layer used now and then
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << ' ' << c.optimizer << (c.everything ? " everything" : " plain");
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const Case& c, Net& net) {
  namespace optim = torch::optim;
  const auto parameters = net.parameters();
  if (c.optimizer == "adam") {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(1e-3));
  }
  if (c.optimizer == "adamw") {
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
  }
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
}

// One rank's training; `ddp` is null for the one process.
void train_on(Net& net, const Case& c, int rank, int ranks, DistributedDataParallel* ddp,
              const std::function<void(int)>& after_step) {
  const auto optimizer = optimizer_of(c, net);
  const std::int64_t micro_batch = c.everything ? 5 : 4;
  const std::int64_t micro_batches = c.everything ? 2 : 1;
  for (int step = 0; step < steps_of(c.model); ++step) {
    optimizer->zero_grad();
    std::int64_t targets = 0;
    for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
      const Range rows = slice_of({0, micro_batch}, ranks, rank);
      const Batch batch = batch_of(net, (step * micro_batches + micro) * micro_batch, rows);
      auto loss =
          functional::cross_entropy(net.model->forward(batch.input), batch.target,
                                    functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      if (c.everything && step % 3 == 0 && micro == 0 && rank == 0) {
        loss = loss + net.spare(torch::full({1, 4}, 0.1 * step, torch::kDouble)).sum();
      }
      targets += batch.target.numel();
      if (ddp != nullptr) ddp->add_samples(batch.target.numel());
      loss.backward();
    }
    if (ddp == nullptr) {
      for (auto& parameter : net.parameters()) {
        if (parameter.grad().defined()) parameter.mutable_grad().div_(targets);
      }
    }
    optimizer->step();
    after_step(step);
  }
}

double distance(const Net& a, const Net& b) {
  double largest = 0;
  const auto ours = a.named_parameters(), theirs = b.named_parameters();
  for (const auto& item : ours) {
    const auto& other = theirs[item.key()];
    const double size = other.norm().item<double>();
    largest = std::max(largest, (item.value() - other).norm().item<double>() / (size + 1e-12));
  }
  return largest;
}

class Equality : public ::testing::TestWithParam<Case> {};

TEST_P(Equality, WithOneProcessThatHasTheWholeBatch) {
  at::set_num_threads(1);
  const Case& c = GetParam();
  Net alone(c.model);
  const Net start(c.model);
  train_on(alone, c, 0, 1, nullptr, [](int) {});
  EXPECT_GT(distance(start, alone), 1e-4);
  std::vector<std::pair<int, std::int64_t>> worlds = {{2, 1 << 20}};  // ranks, bucket bytes
  if (c.model != "resnet18") worlds.emplace_back(3, 1 << 20);
  if (c.model == "cnn" || c.model == "gpt") worlds.emplace_back(2, 1);
  std::map<int, std::vector<std::uint64_t>> sums;
  for (const auto& world : worlds) {
    const int ranks = world.first;
    const std::int64_t bucket_bytes = world.second;
    std::vector<std::shared_ptr<Net>> nets;
    for (int rank = 0; rank < ranks; ++rank) nets.push_back(std::make_shared<Net>(c.model));
    const auto errors = run_ranks(ranks, Transport::shm, [&](Group& group) {
      Net& net = *nets[static_cast<std::size_t>(group.rank())];
      DistributedOptions options;
      options.bucket_bytes_max = options.first_bucket_bytes_max = bucket_bytes;
      options.weighting = Weighting::samples;
      options.accumulate = c.everything ? 2 : 1;
      options.check_every = 1;  // replicas are bit-identical after every step
      DistributedDataParallel ddp(nets[static_cast<std::size_t>(group.rank())], group, options);
      train_on(net, c, group.rank(), group.size(), &ddp,
               [&](int step) { EXPECT_TRUE(ddp.is_reduced()) << step; });
      check_replicas(net, group, "at the end");
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_LT(distance(*nets[0], alone), 1e-9) << ranks << " ranks";
    sums[ranks].push_back(parameter_checksum(*nets[0]));
    EXPECT_EQ(sums[ranks].back(), sums[ranks][0]) << "bucket sizes change the bits";
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"mlp", "cnn", "gpt", "resnet18"}) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      for (const bool everything : {false, true}) all.push_back({model, optimizer, everything});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Equality, ::testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.model + "_" + test.param.optimizer +
         (test.param.everything ? "_everything" : "_plain");
});

}  // namespace
}  // namespace lockstep
