// Every option of DistributedDataParallel, on 1 to 4 ranks. Run by itself the ranks are threads;
// under `lockstep run` (tests/torch) each is a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/everywhere.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// S-NUM-01: rank r has x = 1 + 2r and 2 + 4r; the mean over the ranks of the sums of both.
TEST(NoSync, WhereverTheGuardStandsNoRankKeepsItsOwnSums) {
  everywhere([](Group& group) {
    const double x[] = {1.0 + 2 * group.rank(), 2.0 + 4 * group.rank()};
    double expected = 0;
    for (int r = 0; r < group.size(); ++r) expected += (3.0 + 6 * r) / group.size();
    const auto net = std::make_shared<Scalar>();
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      {
        const auto guard = ddp.no_sync();
        net->forward(x[0]).backward();
      }
      net->forward(x[1]).backward();
      EXPECT_FLOAT_EQ(net->gradient(), expected) << "forward and backward";

      net->zero_grad();
      const auto loss = net->forward(x[0]);
      {
        const auto guard = ddp.no_sync();
        loss.backward();
      }
      net->forward(x[1]).backward();
      EXPECT_FLOAT_EQ(net->gradient(), expected) << "around backward alone";

      net->zero_grad();
      torch::Tensor later;
      {
        const auto guard = ddp.no_sync();
        later = net->forward(x[0]);
      }
      later.backward();
      net->forward(x[1]).backward();
      EXPECT_FLOAT_EQ(net->gradient(), expected) << "around forward alone";
    }
  });
}

TEST(NoSync, WhatOnlyAnEarlierPassUsedIsReducedToo) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    for (const bool to_none : {false, true}) {
      for (auto& parameter : net->parameters()) {
        if (to_none || !parameter.grad().defined()) parameter.mutable_grad() = torch::Tensor();
      }
      if (!to_none) net->zero_grad();
      {
        const auto guard = ddp.no_sync();
        const auto inner = ddp.no_sync();  // may be nested
        (net->a * (1.0 + group.rank())).sum().backward();
      }
      (net->b * (1.0 + group.rank())).sum().backward();
      const auto mean = mean_from(1, group.size());
      EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, mean)));
      EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, mean)));
    }
  });
}

TEST(Unused, WhatNobodyUsesStaysUntouched) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    net->a.sum().backward();
    EXPECT_FALSE(net->b.grad().defined());
    // A gradient that is there already keeps its bits: 0.1 · 3 / 3 is not 0.1.
    net->b.mutable_grad() = torch::full({2}, 0.1F);
    (net->a.sum() + net->b.sum() * 0).backward();
    const auto before = net->b.grad().clone();
    for (int step = 0; step < 3; ++step) {
      net->a.sum().backward();
      EXPECT_TRUE(torch::equal(net->b.grad(), before));
    }
  });
}

TEST(Unused, WhatSomeUseCountsAsZeroOnTheOthers) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group, {.bucket_bytes_max = 1});
    for (int step = 0; step < 4; ++step) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
      const bool mine = step % group.size() == group.rank();
      (mine ? net->a.sum() + net->b.sum() : net->a.sum()).backward();
      EXPECT_TRUE(torch::allclose(net->a.grad(), torch::ones({3})));
      EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, 1.0 / group.size())));
    }
  });
}

TEST(Unused, FreezingAfterWrappingWorks) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    // In place: zero_grad() of 2.x lets go of gradients.
    const auto zero = [&] {
      for (auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
    };
    (net->a.sum() + net->b.sum()).backward();
    zero();
    net->b.set_requires_grad(false);
    (net->a * (1.0 + group.rank()) + net->b.sum()).sum().backward();
    EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, mean_from(1, group.size()))));
    EXPECT_TRUE(torch::equal(net->b.grad(), torch::zeros({2})));
    net->b.set_requires_grad(true);  // and thawing what was there at the start
    zero();
    (net->b * (1.0 + group.rank())).sum().backward();
    EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, mean_from(1, group.size()))));
  });
}

TEST(Changes, AreErrorsThatNameTheParameter) {
  struct Growing : Two {
    Growing() {
      frozen = register_parameter("frozen", torch::ones({2}), false);
      head = register_module("head", torch::nn::Linear(3, 1));
    }
    torch::Tensor frozen;
    torch::nn::Linear head{nullptr};
  };
  everywhere([](Group& group) {
    const auto net = std::make_shared<Growing>();
    const auto loss = [&] { return net->head(net->a).sum() + (net->b * net->frozen).sum(); };
    DistributedDataParallel ddp(net, group);
    loss().backward();
    net->frozen.set_requires_grad(true);
    EXPECT_THAT(error_of([&] { loss().backward(); }), HasSubstr("'frozen'"));
    net->frozen.set_requires_grad(false);
    loss().backward();
    const auto added = net->head->register_parameter("scale", torch::ones({1}));
    EXPECT_THAT(error_of([&] { (loss() * added).sum().backward(); }),
                HasSubstr("'head.scale' was added"));
  });
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    net->to(torch::kDouble);  // of all parameters, so that no old accumulator fires
    const auto message = error_of([&] { (net->a.sum() + net->b.sum()).backward(); });
    EXPECT_THAT(message, HasSubstr("was Float"));
    EXPECT_THAT(message, HasSubstr("is Double now"));
    net->to(torch::kFloat);  // there and back: the same again
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
    ((net->a.sum() + net->b.sum()) * (1.0 + group.rank())).backward();
    const auto mean = mean_from(1, group.size());
    EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, mean)));
    EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, mean)));
  });
}

TEST(Changes, AGradientThatTheUserReplacesCounts) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    (net->a.sum() + net->b.sum()).backward();
    net->zero_grad();
    net->b.mutable_grad() = torch::full({2}, 1.0F + group.rank());
    net->a.mutable_grad() = torch::full({3}, 10.0F);
    net->a.sum().backward();
    EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, 11.0)));
    EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, mean_from(1, group.size()))));
  });
}

// S-HANG-02: rank 0 has 5 batches with x = 1, the others 6 with x = 3.
TEST(Join, DividesByAllRanksOrByThoseThatAreLeft) {
  using DivideBy = JoinOptions::DivideBy;
  everywhere([](Group& group) {
    for (const DivideBy divide_by : {DivideBy::all_ranks, DivideBy::live_ranks}) {
      const auto net = std::make_shared<Scalar>();
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      DistributedDataParallel ddp(net, group);
      const int steps = group.rank() == 0 ? 5 : 6;
      ddp.join(
          [&] {
            for (int step = 0; step < steps; ++step) {
              optimizer.zero_grad();
              net->forward(group.rank() == 0 ? 1 : 3).backward();
              optimizer.step();
            }
          },
          {.divide_by = divide_by});
      const int n = group.size();
      double expected = 1 - 0.1 * 5 * (1 + 3.0 * (n - 1)) / n;
      if (n > 1) expected -= 0.1 * (divide_by == DivideBy::all_ranks ? 3.0 * (n - 1) / n : 3.0);
      EXPECT_NEAR(net->w.item<float>(), expected, 1e-6);
      EXPECT_TRUE(same_everywhere(net->w, group));
    }
  });
}

TEST(Join, WithAStepTheOptimizersStayTheSameToo) {
  everywhere([](Group& group) {
    torch::manual_seed(7);
    auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    DistributedDataParallel ddp(net, group);
    const auto step = [&] { optimizer.step(); };
    ddp.join(
        [&] {
          for (int i = 0; i <= 2 * group.rank(); ++i) {
            for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
            net->forward(torch::full({1, 3}, 1.0 + i + group.rank())).sum().backward();
            step();
          }
        },
        {.step = step});
    EXPECT_TRUE(same_everywhere(net->weight, group));
    // The momentum shows in the next step.
    optimizer.zero_grad();
    net->forward(torch::ones({1, 3})).sum().backward();
    step();
    EXPECT_TRUE(same_everywhere(net->weight, group));
  });
}

TEST(Join, ARankWithoutAnyDataOrAllOfThem) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group);
    ddp.join([&] {
      if (group.rank() == 0) return;
      for (int step = 0; step < 2; ++step) {
        const auto guard = ddp.no_sync();
        net->a.sum().backward();
      }
      (net->a.sum() + net->b.sum()).backward();
    });
    ddp.join([] {});
    net->zero_grad();
    (net->a.sum() + net->b.sum()).backward();
    EXPECT_TRUE(torch::allclose(net->b.grad(), torch::ones({2})));
  });
}

// S-NUM-02: rank 0 has 1 sample with a loss of 4·w, the others 3 with a sum of 3·w.
TEST(Weighting, TheMeanIsOverSamples) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Scalar>();
    DistributedDataParallel ddp(net, group, {.weighting = Weighting::samples});
    EXPECT_THAT(error_of([&] { net->forward(1).backward(); }), HasSubstr("add_samples"));
    net->zero_grad();
    const bool first = group.rank() == 0;
    const double all = 1 + 3.0 * (group.size() - 1);
    ddp.add_samples(first ? 1 : 3);
    net->forward(first ? 4 : 3).backward();
    EXPECT_FLOAT_EQ(net->gradient(), (4 + 3.0 * (group.size() - 1)) / all);
    EXPECT_EQ(ddp.last_step().divided_by, all);

    // Two micro-batches: rank 0 has 1 and 3 samples, the others 2 and none.
    net->zero_grad();
    {
      const auto guard = ddp.no_sync();
      ddp.add_samples(first ? 1 : 2);
      net->forward(first ? 1 : 2).backward();
    }
    ddp.add_samples(first ? 3 : 0);
    net->forward(first ? 6 : 0).backward();
    EXPECT_FLOAT_EQ(net->gradient(),
                    (7 + 2.0 * (group.size() - 1)) / (4 + 2.0 * (group.size() - 1)));

    // No sample anywhere: zeros, no NaN.
    net->zero_grad();
    ddp.add_samples(0);
    net->forward(0).backward();
    EXPECT_EQ(net->gradient(), 0);
    EXPECT_EQ(ddp.last_step().divided_by, 0);
  });
}

TEST(Weighting, CountsInJoinToo) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Scalar>();
    DistributedDataParallel ddp(net, group, {.weighting = Weighting::samples});
    float last = 0;
    ddp.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        ddp.add_samples(10);
        net->forward(10.0 * (group.rank() + 1)).backward();
        last = net->gradient();
      }
    });
    // In the last step of the last rank it is alone; in the others', those from it on are left.
    EXPECT_FLOAT_EQ(last, mean_from(group.rank() + 1, group.size() - group.rank()));
  });
}

}  // namespace
}  // namespace lockstep
