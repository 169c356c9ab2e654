#include "lockstep/torch/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kInputs = 12;
constexpr int kBatch = 24;

struct Net : torch::nn::Module {
  explicit Net(std::uint64_t seed) {
    torch::manual_seed(seed);
    first = register_module("first", torch::nn::Linear(kInputs, 33));
    second = register_module("second", torch::nn::Linear(33, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    count = register_buffer("count", torch::full({1}, static_cast<double>(seed)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  torch::Tensor count;
};

// Batches are functions of the step alone, so that every rank can take its rows of them.
torch::Tensor batch_of(int step) {
  return torch::sin(torch::arange(kBatch * kInputs, torch::kFloat) * (0.37 + step))
      .view({kBatch, kInputs});
}
torch::Tensor targets_of(int step) {
  return (torch::arange(kBatch) * 7 + step).remainder(3);
}

torch::Tensor loss_of(Net& net, int step, int part, int parts) {
  const int rows = kBatch / parts;
  return torch::nn::functional::cross_entropy(
      net.forward(batch_of(step).narrow(0, part * rows, rows)),
      targets_of(step).narrow(0, part * rows, rows));
}

std::vector<torch::Tensor> parameters_after(Net& net, int steps, int part, int parts,
                                            const std::function<void()>& zero_grad = {}) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    if (zero_grad)
      zero_grad();
    else
      optimizer.zero_grad();
    loss_of(net, step, part, parts).backward();
    optimizer.step();
  }
  std::vector<torch::Tensor> values;
  for (const auto& parameter : net.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

// Modules are built one after the other: torch's seed is one for the process.
std::vector<std::shared_ptr<Net>> nets(int ranks) {
  std::vector<std::shared_ptr<Net>> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(std::make_shared<Net>(static_cast<std::uint64_t>(rank)));
  }
  return result;
}

TEST(DistributedDataParallel, EqualsOneProcessWithTheWholeBatchAndReplicasAreBitIdentical) {
  Net alone(0);
  const auto expected = parameters_after(alone, 20, 0, 1);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Transport transport : {Transport::shm, Transport::tcp}) {
      for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
        auto replicas = nets(ranks);
        std::vector<std::uint64_t> sums(static_cast<std::size_t>(ranks));
        const auto errors = run_ranks(ranks, transport, [&](Group& group) {
          const auto rank = static_cast<std::size_t>(group.rank());
          DistributedDataParallel ddp(replicas[rank], group, {bucket_bytes, bucket_bytes});
          EXPECT_EQ(replicas[rank]->count.item<float>(), 0);
          const auto values = parameters_after(*replicas[rank], 20, group.rank(), ranks);
          for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_TRUE(torch::allclose(values[i], expected[i], 1e-5, 1e-6)) << i;
          }
          sums[rank] = parameter_checksum(*replicas[rank], true);
        });
        EXPECT_THAT(errors, Each(IsEmpty()));
        EXPECT_THAT(sums, Each(sums[0]));
      }
    }
  }
}

TEST(DistributedDataParallel, SharedMemoryAndTcpAndAnyBucketSizeGiveTheSameBits) {
  std::vector<std::uint64_t> sums;
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    for (const std::int64_t bucket_bytes : {1, 700, 1 << 22}) {
      auto replicas = nets(3);
      run_ranks(3, transport, [&](Group& group) {
        auto& net = replicas[static_cast<std::size_t>(group.rank())];
        DistributedDataParallel ddp(net, group, {bucket_bytes, bucket_bytes});
        parameters_after(*net, 10, group.rank(), 3);
      });
      sums.push_back(parameter_checksum(*replicas[0]));
    }
  }
  EXPECT_THAT(sums, Each(sums[0]));
}

TEST(DistributedDataParallel, GradientsSetToNoneWorkAsWell) {
  Net alone(0);
  const auto expected = parameters_after(alone, 5, 0, 1);
  auto replicas = nets(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto& net = replicas[static_cast<std::size_t>(group.rank())];
    DistributedDataParallel ddp(net, group);
    const auto values = parameters_after(*net, 5, group.rank(), 2, [&] {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
    });
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(torch::allclose(values[i], expected[i], 1e-5, 1e-6));
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DistributedDataParallel, AParameterUsedTwiceIsReducedOnce) {  // S-NUM-13
  struct Tied : torch::nn::Module {
    Tied() { w = register_parameter("w", torch::full({1}, 3.0)); }
    torch::Tensor w;
  };
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto net = std::make_shared<Tied>();
    DistributedDataParallel ddp(net, group);
    (net->w * (net->w * (group.rank() + 1.0))).sum().backward();
    EXPECT_EQ(net->w.grad().item<float>(), 9);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DistributedDataParallel, AParameterOfTwoNamesIsReducedOnce) {  // S-NUM-13
  struct Twice : torch::nn::Module {
    Twice() {
      layer = register_module("a", torch::nn::Linear(1, 1));
      register_module("b", layer);
    }
    torch::nn::Linear layer{nullptr};
  };
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto net = std::make_shared<Twice>();
    DistributedDataParallel ddp(net, group, {1});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net->layer(torch::full({1, 1}, group.rank() + 1.0)).sum().backward();
      EXPECT_EQ(net->layer->weight.grad().item<float>(), 1.5);
      EXPECT_EQ(ddp.last_step().bytes_reduced, 8);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DistributedDataParallel, ABackwardThatIsBrokenOffBreaksTheGroupWithItsCause) {
  struct Boom : torch::autograd::Function<Boom> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
      throw std::runtime_error("boom");
    }
  };
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(kInputs, 8), torch::nn::Linear(8, 1));
    DistributedDataParallel ddp(net, group, {1});
    if (group.rank() == 1) return net->forward(batch_of(0)).sum().backward();
    const auto hidden = net[0]->as<torch::nn::Linear>()->forward(batch_of(0));
    const auto out = net[1]->as<torch::nn::Linear>()->forward(Boom::apply(hidden));
    EXPECT_THROW(out.sum().backward(), std::runtime_error);
  });
  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], HasSubstr("rank 0: a backward pass was broken off"));
}

TEST(DistributedDataParallel, WhatOneRankDoesNotUseCountsAsZeroThere) {
  auto replicas = nets(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto& net = *replicas[static_cast<std::size_t>(group.rank())];
    DistributedDataParallel ddp(replicas[static_cast<std::size_t>(group.rank())], group);
    auto loss = loss_of(net, 0, group.rank(), 2);
    if (group.rank() == 1) loss = loss + net.unused(torch::ones({1, 2})).sum();
    loss.backward();
    EXPECT_TRUE(torch::equal(net.unused->bias.grad(), torch::full({2}, 0.5)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DistributedDataParallel, ParametersMayHaveGapsOrBeComplex) {
  struct Odd : torch::nn::Module {
    Odd() {
      gaps = register_parameter("gaps", torch::ones({6, 8}).slice(1, 0, 5, 2));
      waves = register_parameter("waves", torch::ones({4}, torch::kComplexFloat));
      after = register_parameter("after", torch::ones({3}));
    }
    torch::Tensor gaps, waves, after;
  };
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    const auto odd = std::make_shared<Odd>();
    ASSERT_FALSE(odd->gaps.is_non_overlapping_and_dense());
    DistributedDataParallel ddp(odd, group);
    const float factor = 1.0F + static_cast<float>(group.rank());
    const auto waves = torch::view_as_real(odd->waves) * torch::tensor({1.0F, 3.0F});
    ((odd->gaps.sum() + waves.sum() + odd->after.sum()) * factor).backward();
    EXPECT_TRUE(torch::equal(odd->gaps.grad(), torch::full({6, 3}, 1.5F)));
    EXPECT_TRUE(torch::equal(torch::view_as_real(odd->waves.grad()),
                             torch::tensor({1.5F, 4.5F}).expand({4, 2})));
    EXPECT_TRUE(torch::equal(odd->after.grad(), torch::full({3}, 1.5F)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// S-PERF-06: the user's code runs on the user's thread, where the library holds no lock of the
// group: whoever is slow there is waited for, and may use the group.
TEST(DistributedDataParallel, AGradientHookMaySleepAndReduce) {
  auto replicas = nets(2);
  Settings settings;
  settings.transport = Transport::tcp;
  settings.stall_after = std::chrono::milliseconds(500);
  const auto errors = run_job(2, settings, [&](Group& group) {
    auto& net = *replicas[static_cast<std::size_t>(group.rank())];
    DistributedDataParallel ddp(replicas[static_cast<std::size_t>(group.rank())], group, {200});
    int calls = 0;
    net.first->weight.register_hook([&](const torch::Tensor& gradient) {
      if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
      torch::Tensor largest = gradient.abs().max();
      group.all_reduce(largest, Reduce::max);
      ++calls;
      return gradient / largest;
    });
    loss_of(net, 0, group.rank(), 2).backward();
    EXPECT_EQ(calls, 1);
    EXPECT_LE(net.first->weight.grad().abs().max().item<float>(), 1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_TRUE(torch::equal(replicas[0]->first->weight.grad(), replicas[1]->first->weight.grad()));
}

TEST(DistributedDataParallel, ReportsWhatTheStepCost) {
  auto replicas = nets(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto& net = *replicas[static_cast<std::size_t>(group.rank())];
    DistributedDataParallel ddp(replicas[static_cast<std::size_t>(group.rank())], group, {200});
    loss_of(net, 0, group.rank(), 2).backward();
    const StepCost cost = ddp.last_step();
    EXPECT_EQ(cost.bytes_reduced, 4 * (kInputs * 33 + 33 + 33 * 3 + 3 + 6));
    EXPECT_GT(cost.buckets, 1);
    EXPECT_GT(cost.backward_ms, 0);
    EXPECT_LE(cost.exposed_comm_ms, cost.backward_ms);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DistributedDataParallel, DifferentModelsAreRefusedWithTheFirstDifference) {  // S-HANG-04
  struct Pair : torch::nn::Module {
    explicit Pair(std::vector<std::string> names, torch::ScalarType type = torch::kFloat) {
      for (const auto& name : names) register_parameter(name, torch::zeros({4, 4}, type));
    }
  };
  const auto refusals = [](std::shared_ptr<Pair> zero, std::shared_ptr<Pair> one) {
    return run_ranks(2, Transport::shm, [&](Group& group) {
      DistributedDataParallel ddp(group.rank() == 0 ? zero : one, group);
      ADD_FAILURE() << "accepted";
    });
  };
  const std::vector<std::string> ab = {"a", "b"};
  EXPECT_THAT(refusals(std::make_shared<Pair>(ab),
                       std::make_shared<Pair>(std::vector<std::string>{"b", "a"})),
              Each(AllOf(HasSubstr("'a'"), HasSubstr("'b'"))));
  EXPECT_THAT(
      refusals(std::make_shared<Pair>(ab), std::make_shared<Pair>(std::vector<std::string>{"a"})),
      Each(AllOf(HasSubstr("'b'"), HasSubstr("nothing more"))));
  EXPECT_THAT(refusals(std::make_shared<Pair>(ab), std::make_shared<Pair>(ab, torch::kDouble)),
              Each(AllOf(HasSubstr("Float"), HasSubstr("Double"))));
}

TEST(DistributedDataParallel, DetachesWhenDestroyed) {
  Group group{Settings()};
  auto net = std::make_shared<Net>(1);
  {
    DistributedDataParallel ddp(net, group);
    loss_of(*net, 0, 0, 1).backward();
  }
  const auto before = net->first->bias.grad().clone();
  net->zero_grad();
  loss_of(*net, 0, 0, 1).backward();
  EXPECT_TRUE(torch::equal(net->first->bias.grad(), before));
}

TEST(DistributedDataParallel, ALostPeerComesOutOfBackward) {
  auto replicas = nets(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto& net = *replicas[static_cast<std::size_t>(group.rank())];
    DistributedDataParallel ddp(replicas[static_cast<std::size_t>(group.rank())], group);
    if (group.rank() == 1) throw std::runtime_error("the user's own mistake");
    loss_of(net, 0, 0, 1).backward();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1, which left after an exception"));
  EXPECT_EQ(errors[1], "the user's own mistake");
}

}  // namespace
}  // namespace lockstep
