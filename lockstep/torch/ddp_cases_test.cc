// Real failures that people reported on systems like this one, by the numbers of their cases; and
// what a step says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "lockstep/env/temporary_folder.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/everywhere.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Case, ARankThatRunsOutOfBatchesIsNamed) {  // S-HANG-02, without join
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    const auto net = std::make_shared<Scalar>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < (group.rank() == 0 ? 5 : 6); ++step) {
      optimizer.zero_grad();
      net->forward(group.rank() == 0 ? 1 : 3).backward();
      optimizer.step();
    }
  });
  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

// S-NUM-05: of a 1 × 1 convolution in channels-last the gradient's strides are not the parameter's.
TEST(Case, ChannelsLastParametersAreAveragedByIndex) {
  torch::manual_seed(2);
  const auto input = torch::rand({4, 16, 5, 5});
  torch::nn::Conv2d plain(16, 32, 1);
  plain->forward(input).square().sum().backward();
  everywhere([&](Group& group) {
    auto conv = std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(16, 32, 1));
    {
      const torch::NoGradGuard no_grad;
      conv->weight.set_data(plain->weight.clone().contiguous(torch::MemoryFormat::ChannelsLast));
      conv->bias.copy_(plain->bias);
    }
    const auto strides = conv->weight.strides().vec();
    DistributedDataParallel ddp(conv, group);
    for (int step = 0; step < 2; ++step) {
      for (auto& parameter : conv->parameters()) parameter.mutable_grad() = torch::Tensor();
      const auto own = input.contiguous(torch::MemoryFormat::ChannelsLast);
      conv->forward(own).square().sum().backward();
      EXPECT_TRUE(torch::allclose(conv->weight.grad().contiguous(), plain->weight.grad(), 1e-4));
      EXPECT_EQ(conv->weight.strides().vec(), strides);
    }
  });
}

TEST(Case, ReplicasStayBitIdenticalOverAThousandSteps) {  // S-NUM-09
  std::vector<std::uint64_t> runs;
  for (int run = 0; run < 2; ++run) {
    std::vector<std::uint64_t> sums(4);
    std::vector<torch::nn::Sequential> nets;
    for (int rank = 0; rank < 4; ++rank) {
      torch::manual_seed(5);
      nets.push_back(torch::nn::Sequential(torch::nn::Linear(10, 20), torch::nn::Tanh(),
                                           torch::nn::Linear(20, 1)));
    }
    const auto errors = run_ranks(4, Transport::shm, [&](Group& group) {
      auto& net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel ddp(net, group, {.check_every = 100});
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
      for (int step = 0; step < 1000; ++step) {
        optimizer.zero_grad();
        const auto x = torch::sin(torch::arange(80, torch::kFloat) * (step + 2 + group.rank()));
        net->forward(x.view({8, 10})).square().mean().backward();
        optimizer.step();
      }
      sums[static_cast<std::size_t>(group.rank())] = parameter_checksum(*net);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_THAT(sums, Each(sums[0]));
    runs.push_back(sums[0]);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// S-PERF-04: a giant's gradient comes first, small ones take their time. (Smaller than in the case,
// so that four ranks have room.)
TEST(Case, AGiantTensorIsUnderWayBeforeTheSmallOnesAreReady) {
  struct Slow : torch::autograd::Function<Slow> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list grads) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return grads;
    }
  };
  struct Model : torch::nn::Module {
    Model() {
      for (int i = 0; i < 40; ++i) {
        small.push_back(register_parameter("small" + std::to_string(i), torch::ones({16})));
      }
      giant = register_parameter("giant", torch::ones({4'000'000}));
    }
    torch::Tensor loss() {
      auto x = torch::zeros({16});
      for (const auto& parameter : small) x = Slow::apply(x + parameter);
      return (x * giant.narrow(0, 0, 16)).sum() + giant.sum();
    }
    std::vector<torch::Tensor> small;
    torch::Tensor giant;
  };
  const auto errors = run_ranks(4, Transport::shm, [&](Group& group) {
    const auto net = std::make_shared<Model>();
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net->loss().backward();
    }
    const auto times = ddp.last_step().bucket_times;
    ASSERT_GE(times.size(), 2U);
    EXPECT_GT(times[0].bytes, 16'000'000 - 64);
    EXPECT_LT(times[0].launch_ms, times.back().ready_ms - 100);
    EXPECT_LT(times[0].done_ms, times.back().ready_ms);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(StepCost, TellsWhenBucketsWereReadyLaunchedAndDone) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group, {.bucket_bytes_max = 1});
    ddp.begin_step();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    (net->a.sum() + net->b.sum()).backward();
    const StepCost cost = ddp.last_step();
    EXPECT_GE(cost.forward_ms, 20);
    EXPECT_EQ(cost.buckets, 2);
    ASSERT_EQ(cost.bucket_times.size(), 2U);
    for (const BucketTimes& bucket : cost.bucket_times) {
      EXPECT_LE(bucket.ready_ms, bucket.launch_ms);
      EXPECT_LE(bucket.launch_ms, bucket.done_ms);
      EXPECT_LE(bucket.done_ms, cost.backward_ms);
      EXPECT_EQ(bucket.bytes, 64);
    }
    EXPECT_EQ(cost.divided_by, group.size());
    (net->a.sum() + net->b.sum()).backward();
    EXPECT_EQ(ddp.last_step().forward_ms, 0);
  });
}

TEST(Trace, HoldsTheSpansOfAllRanksOnOneClock) {
  const TemporaryFolder folder;
  const auto path = (folder.path() / "trace.json").string();
  everywhere([&](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    EXPECT_THAT(error_of([&] { ddp.write_trace(path); }), HasSubstr("start_trace"));
    ddp.start_trace();
    for (int step = 0; step < 3; ++step) {
      ddp.begin_step();
      (net->a.sum() + net->b.sum()).backward();
    }
    ddp.write_trace(path);
    if (group.rank() == 0) {
      const auto events = nlohmann::json::parse(std::ifstream(path)).at("traceEvents");
      std::map<int, int> backward;
      double first = 1e300, last = 0;
      for (const auto& event : events) {
        if (event.at("ph") != "X") continue;
        first = std::min(first, event.at("ts").get<double>());
        last = std::max(last, event.at("ts").get<double>());
        if (event.at("name") == "backward") ++backward[event.at("pid").get<int>()];
      }
      EXPECT_EQ(backward.size(), static_cast<std::size_t>(group.size()));
      for (const auto& [rank, count] : backward) EXPECT_EQ(count, 3);
      EXPECT_LT(last - first, 10e6);
    }
    EXPECT_THAT(error_of([&] { ddp.write_trace("/nonexistent/folder/trace.json"); }),
                HasSubstr("cannot write the trace"));
  });
}

}  // namespace
}  // namespace lockstep
