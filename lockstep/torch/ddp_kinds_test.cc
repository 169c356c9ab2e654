// What DistributedDataParallel does with buffers, kinds of parameters, hooks and checks, on 1 to 4
// ranks. Run by itself the ranks are threads; under `lockstep run` (tests/torch) each is a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/everywhere.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
