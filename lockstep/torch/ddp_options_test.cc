// Every option of DistributedDataParallel, on 1 to 4 ranks. Run by itself the ranks are threads;
// under `lockstep run` (tests/torch) each is a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs `body` on every rank of groups of 1 to 4 ranks; on this process's rank, if it is one.
void everywhere(const std::function<void(Group&)>& body) {
  if (std::getenv("RANK") != nullptr) {
    static Group group = init();
    return body(group);
  }
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_THAT(run_ranks(ranks, Transport::shm, body), Each(IsEmpty())) << ranks << " ranks";
  }
}

// The message of the Error that `call` throws.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// y = w·x, with the gradient x.
struct Scalar : torch::nn::Module {
  explicit Scalar(double value = 1) { w = register_parameter("w", torch::full({1}, value)); }
  torch::Tensor forward(double x) { return (w * x).sum(); }
  float gradient() { return w.grad().item<float>(); }
  torch::Tensor w;
};

struct Two : torch::nn::Module {
  Two() {
    a = register_parameter("a", torch::ones({3}));
    b = register_parameter("b", torch::ones({2}));
  }
  torch::Tensor a, b;
};

// Of values first, first + 1, …, one for each rank.
double mean_from(double first, int ranks) {
  return first + (ranks - 1) / 2.0;
}

bool same_everywhere(const torch::Tensor& tensor, Group& group) {
  torch::Tensor low = tensor.detach().clone(), high = low.clone();
  group.all_reduce(low, Reduce::min);
  group.all_reduce(high, Reduce::max);
  return torch::equal(low, high);
}

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
    (net->a.sum() + net->b.sum()).backward();
    net->zero_grad();
    net->b.set_requires_grad(false);
    (net->a * (1.0 + group.rank()) + net->b.sum()).sum().backward();
    EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, mean_from(1, group.size()))));
    EXPECT_TRUE(torch::equal(net->b.grad(), torch::zeros({2})));
    net->b.set_requires_grad(true);  // and thawing what was there at the start
    net->zero_grad();
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

// S-NUM-11: the counter is 2^53 + 1, which no double can hold.
TEST(Buffers, BecomeThoseOfRankZeroToTheBit) {
  struct Counting : Scalar {
    explicit Counting(int rank) {
      count =
          register_buffer("count", torch::tensor(rank == 0 ? 9007199254740993 : 0, torch::kLong));
      a = &register_buffer("a", torch::full({2}, static_cast<float>(rank)));
    }
    torch::Tensor count;
    torch::Tensor* a;  // the registered one, so that assigning replaces it
  };
  everywhere([](Group& group) {
    for (const BufferSync sync : {BufferSync::after_backward, BufferSync::on_request}) {
      const auto net = std::make_shared<Counting>(group.rank());
      DistributedDataParallel ddp(net, group, {.buffers = sync});
      EXPECT_EQ(net->count.item<std::int64_t>(), 9007199254740993);
      for (int step = 0; step < 3; ++step) {
        *net->a = torch::full({2}, 10.0F * step + group.rank());
        net->forward(1).backward();
        if (sync == BufferSync::on_request) {
          EXPECT_EQ((*net->a)[0].item<float>(), 10 * step + group.rank());
          ddp.sync_buffers();
        }
        EXPECT_TRUE(torch::equal(*net->a, torch::full({2}, 10.0F * step)));
      }
    }
  });
}

// S-HANG-03: one rank evaluates while the others wait in a barrier.
TEST(Buffers, EvaluationOnOneRankAsksNobody) {
  struct Normed : torch::nn::Module {
    Normed() {
      norm = register_module("norm", torch::nn::BatchNorm1d(4));
      out = register_module("out", torch::nn::Linear(4, 1));
    }
    torch::Tensor forward(const torch::Tensor& x) { return out(norm(x)); }
    torch::nn::BatchNorm1d norm{nullptr};
    torch::nn::Linear out{nullptr};
  };
  everywhere([](Group& group) {
    const auto net = std::make_shared<Normed>();
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto train = [&] {
      optimizer.zero_grad();
      net->forward(torch::rand({8, 4}) + group.rank()).sum().backward();
      optimizer.step();
    };
    train();
    train();
    if (group.rank() == 0) {
      net->eval();
      const torch::NoGradGuard no_grad;
      for (int batch = 0; batch < 10; ++batch) net->forward(torch::rand({8, 4}));
      net->train();
    }
    group.barrier();
    train();
    train();
    EXPECT_TRUE(same_everywhere(net->out->weight, group));
    EXPECT_TRUE(same_everywhere(net->norm->running_mean, group));
  });
}

TEST(LeaveOut, ParametersAndBuffersAreLeftAlone) {
  everywhere([](Group& group) {
    struct Parts : torch::nn::Module {
      explicit Parts(int rank) {
        own = register_module("own", torch::nn::BatchNorm1d(3));
        own->running_mean.fill_(rank);
        torch::NoGradGuard no_grad;
        own->weight.fill_(1.0 + rank);
        w = register_parameter("w", torch::full({3}, 1.0 + rank));
      }
      torch::nn::BatchNorm1d own{nullptr};
      torch::Tensor w;
    };
    const auto net = std::make_shared<Parts>(group.rank());
    DistributedDataParallel ddp(net, group, {.leave_out = {"own"}});
    EXPECT_EQ(net->own->weight[0].item<float>(), 1 + group.rank());
    EXPECT_EQ(net->w[0].item<float>(), 1);
    net->own->eval();
    (net->own(torch::full({2, 3}, 2.0)) * net->w).sum().backward();
    EXPECT_EQ(net->own->running_mean[0].item<float>(), group.rank());
    EXPECT_TRUE(same_everywhere(net->w.grad(), group));
    const auto own = net->own->weight.detach() + net->own->running_mean;
    EXPECT_EQ(same_everywhere(own, group), group.size() == 1);
    EXPECT_THAT(
        error_of([&] { DistributedDataParallel wrong(net, group, {.leave_out = {"owned"}}); }),
        HasSubstr("'owned'"));
  });
}

// S-NUM-06: rank 0's whole batch is padding; then the roles change.
TEST(Sparse, OnlyTouchedRowsTravel) {
  everywhere([](Group& group) {
    torch::manual_seed(1);
    auto embedding =
        torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 2).padding_idx(0).sparse(true));
    DistributedDataParallel ddp(embedding, group);
    torch::optim::SGD optimizer(embedding->parameters(), 1.0);
    for (int step = 0; step < 3; ++step) {
      for (auto& parameter : embedding->parameters()) parameter.mutable_grad() = torch::Tensor();
      const bool padding = group.rank() % 2 == step % 2;
      const auto indices = padding ? torch::tensor({0, 0}) : torch::tensor({3, 3});
      const auto before = embedding->weight.detach().clone();
      embedding(indices).sum().backward();
      int with_data = 0;
      for (int r = 0; r < group.size(); ++r) with_data += r % 2 == step % 2 ? 0 : 1;
      auto expected = torch::zeros({10, 2});
      expected[3] = 2.0 * with_data / group.size();
      ASSERT_TRUE(embedding->weight.grad().is_sparse());
      EXPECT_TRUE(torch::allclose(embedding->weight.grad().to_dense(), expected));
      {
        const torch::NoGradGuard no_grad;
        embedding->weight.add_(embedding->weight.grad(), -1);
      }
      EXPECT_TRUE(torch::allclose(before - embedding->weight, expected));
      EXPECT_TRUE(same_everywhere(embedding->weight, group));
    }
  });
}

TEST(Sparse, AnUndeclaredOneIsNamed) {
  struct Functional : torch::nn::Module {
    Functional() { table = register_parameter("table", torch::rand({4, 2})); }
    torch::Tensor table;
  };
  everywhere([](Group& group) {
    const auto net = std::make_shared<Functional>();
    namespace F = torch::nn::functional;
    const auto loss = [&] {
      return F::embedding(torch::tensor({group.rank() % 4}), net->table,
                          F::EmbeddingFuncOptions().sparse(true))
          .sum();
    };
    DistributedDataParallel ddp(net, group, {.sparse = {"table"}});
    loss().backward();
    auto expected = torch::zeros({4, 2});
    for (int r = 0; r < group.size(); ++r) expected[r % 4] += 1.0 / group.size();
    EXPECT_TRUE(torch::allclose(net->table.grad().to_dense(), expected));
  });
}

TEST(Types, EveryKindOfParameterIsAveragedInItsOwnType) {
  everywhere([](Group& group) {
    for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
      const auto net = std::make_shared<Two>();
      net->to(type);
      DistributedDataParallel ddp(net, group);
      for (int step = 0; step < 2; ++step) {
        for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
        ((net->a.sum() + net->b.sum()) * (1.0 + group.rank())).backward();
        EXPECT_EQ(net->a.grad().scalar_type(), type);
        EXPECT_TRUE(torch::allclose(net->a.grad().to(torch::kDouble),
                                    torch::full({3}, mean_from(1, group.size()), torch::kDouble)));
      }
    }
  });
}

TEST(Hooks, CompressionRoundsAndNothingElse) {
  everywhere([](Group& group) {
    for (const auto type : {torch::kHalf, torch::kBFloat16}) {
      const auto net = std::make_shared<Two>();
      DistributedDataParallel ddp(net, group, {.reduce_in = type});
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        const double factor = 1.0 / 3 + group.rank();
        (net->a * factor).sum().backward();
        torch::Tensor sum = torch::zeros({3});
        for (int r = 0; r < group.size(); ++r) {
          sum += torch::full({3}, 1.0 / 3 + r).to(type).to(torch::kFloat);
        }
        const auto expected = (sum / group.size()).to(type).to(torch::kFloat);
        EXPECT_TRUE(torch::equal(net->a.grad(), expected)) << net->a.grad() << expected;
      }
    }
  });
  EXPECT_THAT(error_of([] { compress_to(DType::f64); }), HasSubstr("f16 or bf16"));
}

TEST(Hooks, StackAndCanBeReplaced) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group, {.bucket_bytes_max = 1});
    std::vector<std::string> calls;
    std::vector<std::string> names;
    // Scales before the reduction and back after it.
    const auto scale = [&](const char* name, float factor) {
      return
          [&calls, &names, name, factor](const GradientBucket& bucket, const ReduceBucket& next) {
            calls.push_back(name);
            for (const std::size_t i : bucket.members) names.push_back(bucket.gradients[i].name);
            auto values = torch::from_blob(bucket.tensor.data, {bucket.tensor.count});
            values.mul_(factor);
            Reduction reduction = next(bucket);
            reduction.then = [then = std::move(reduction.then), values, factor]() mutable {
              if (then) then();
              values.div_(factor);
            };
            return reduction;
          };
    };
    const auto check = [&] {
      net->zero_grad();
      calls.clear();
      ((net->a.sum() + net->b.sum()) * (1.0 + group.rank())).backward();
      const auto mean = mean_from(1, group.size());
      EXPECT_TRUE(torch::allclose(net->a.grad(), torch::full({3}, mean)));
      EXPECT_TRUE(torch::allclose(net->b.grad(), torch::full({2}, mean)));
    };
    ddp.set_hook(scale("inner", 4));
    ddp.add_hook(scale("outer", 0.5));
    check();
    EXPECT_THAT(calls, ::testing::ElementsAre("outer", "inner", "outer", "inner"));
    EXPECT_THAT(names, ::testing::Contains("a"));
    ddp.set_hook(scale("other", 2));
    check();
    EXPECT_THAT(calls, ::testing::ElementsAre("other", "other"));
    ddp.set_hook({});
    check();
    EXPECT_THAT(calls, IsEmpty());
    // Unused parameters are seen behind a hook as well.
    ddp.set_hook(scale("last", 2));
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
    net->a.sum().backward();
    EXPECT_FALSE(net->b.grad().defined());
  });
}

TEST(Script, ATorchScriptModuleIsTrainedTheSameWay) {
  everywhere([](Group& group) {
    torch::jit::Module module("net");
    {
      static std::mutex one_at_a_time;  // the compiler's own state
      const std::lock_guard lock(one_at_a_time);
      module.register_parameter("weight", torch::full({2, 3}, 1.0F + group.rank()).requires_grad_(),
                                false);
      module.register_buffer("count", torch::full({1}, group.rank()));
      module.define("def forward(self, x):\n  return torch.matmul(x, self.weight.t())\n");
    }
    DistributedDataParallel ddp(module, group);
    const auto weight = module.attr("weight").toTensor();
    EXPECT_TRUE(torch::equal(weight, torch::ones({2, 3})));
    EXPECT_EQ(module.attr("count").toTensor().item<float>(), 0);
    for (int step = 0; step < 3; ++step) {
      weight.mutable_grad() = torch::Tensor();
      module.forward({torch::full({1, 3}, 1.0 + group.rank())}).toTensor().sum().backward();
      EXPECT_TRUE(torch::allclose(weight.grad(), torch::full({2, 3}, mean_from(1, group.size()))));
    }
  });
}

TEST(Checks, ReplicasThatDifferAreNamed) {
  everywhere([](Group& group) {
    if (group.size() == 1) return;
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group, {.check_every = 2});
    const auto pass = [&] { (net->a.sum() + net->b.sum()).backward(); };
    pass();
    pass();
    pass();
    if (group.rank() == 1) {
      const torch::NoGradGuard no_grad;
      net->b[1] += 1e-7;
    }
    const std::string message = error_of(pass);
    EXPECT_THAT(message, HasSubstr("after 4 backward passes"));
    EXPECT_THAT(message, HasSubstr("parameter 'b' of rank 1"));
  });
}

TEST(Checks, WhatIsNotFiniteIsSeenByAllRanks) {
  everywhere([](Group& group) {
    if (group.size() == 1) return;
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      const auto net = std::make_shared<Two>();
      DistributedDataParallel ddp(net, group);
      const auto pass = [&](bool broken) {
        net->zero_grad();
        const float factor = broken && group.rank() == 1 ? bad : 1;
        (net->a.sum() + (net->b * factor).sum()).backward();
        return ddp.last_step().not_finite;
      };
      EXPECT_FALSE(pass(false));
      EXPECT_TRUE(pass(true));
      EXPECT_TRUE(pass(true));
      EXPECT_FALSE(pass(false));
    }
  });
}

TEST(Reentrant, ALayerThatIsComputedAgainInsideBackward) {  // S-NUM-13
  struct Again : torch::autograd::Function<Again> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                 const torch::Tensor& w) {
      context->save_for_backward({x, w});
      const torch::NoGradGuard no_grad;
      return x * w;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list& grads) {
      const auto saved = context->get_saved_variables();
      const torch::AutoGradMode enable(true);
      const auto x = saved[0].detach().requires_grad_(true);
      (x * saved[1]).backward(grads[0]);
      return {x.grad(), torch::Tensor()};
    }
  };
  everywhere([](Group& group) {
    const auto net = std::make_shared<Scalar>(3);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      const auto x = torch::full({1}, 1.0 + group.rank()).requires_grad_(true);
      const std::string message =
          error_of([&] { Again::apply(Again::apply(x, net->w), net->w).sum().backward(); });
      EXPECT_EQ(message, "no error");
      EXPECT_FLOAT_EQ(net->gradient(), 6 * mean_from(1, group.size()));
    }
  });
}

}  // namespace
}  // namespace lockstep
