// Clipping, loss scaling and accumulation, on 1 to 4 ranks (everywhere.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/everywhere.h"
#include "lockstep/torch/gradient_norm.h"
#include "lockstep/torch/loss_scaler.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Gradients of several types, layouts and sizes, the same on all ranks; the last has none.
std::vector<torch::Tensor> parameters_with_gradients() {
  std::vector<torch::Tensor> parameters;
  const auto add = [&](const torch::Tensor& gradient) {
    parameters.push_back(torch::zeros_like(gradient));
    parameters.back().mutable_grad() = gradient;
  };
  add(torch::sin(torch::arange(200'000, torch::kFloat)));
  add(torch::cos(torch::arange(999, torch::kDouble)).view({27, 37}).t());
  add(torch::full({5, 3}, 0.5, torch::kHalf));
  add(torch::full({7}, -2.0, torch::kBFloat16).slice(0, 0, 7, 2));
  add(torch::complex(torch::full({4}, 3.0), torch::full({4}, 4.0)));
  parameters.push_back(torch::zeros({3}));
  return parameters;
}

TEST(GradientNorm, IsThatOfAllGradientsTogether) {
  double alone = 0;
  for (const auto& parameter : parameters_with_gradients()) {
    if (!parameter.grad().defined()) continue;
    const auto gradient =
        parameter.is_complex() ? torch::view_as_real(parameter.grad()) : parameter.grad();
    alone += gradient.to(torch::kDouble).square().sum().item<double>();
  }
  alone = std::sqrt(alone);
  everywhere([&](Group& group) {
    static double first = 0;
    static std::once_flag once;
    const double norm = gradient_norm(parameters_with_gradients(), group);
    std::call_once(once, [&] { first = norm; });
    EXPECT_EQ(norm, first);  // the same bits on any number of ranks
    EXPECT_NEAR(norm, alone, 1e-9 * alone);
  });
}

TEST(ClipGradients, ScalesDownToTheLimitAndNeverUp) {
  everywhere([](Group& group) {
    auto parameters = parameters_with_gradients();
    const double norm = gradient_norm(parameters, group);
    EXPECT_EQ(clip_gradients(parameters, 2 * norm, group), norm);
    EXPECT_EQ(gradient_norm(parameters, group), norm);
    EXPECT_EQ(clip_gradients(parameters, norm / 4, group), norm);
    EXPECT_NEAR(gradient_norm(parameters, group), norm / 4, 1e-3 * norm);
    parameters[0].mutable_grad()[77] = std::numeric_limits<float>::infinity();
    const auto before = parameters[1].grad().clone();
    EXPECT_FALSE(std::isfinite(clip_gradients(parameters, 1, group)));
    EXPECT_TRUE(torch::equal(parameters[1].grad(), before));
    EXPECT_THAT(error_of([&] { clip_gradients(parameters, 0, group); }), HasSubstr("norm_max"));
  });
}

TEST(ClipGradients, CountsSparseOnes) {
  everywhere([](Group& group) {
    auto table = torch::zeros({10, 2});
    table.mutable_grad() = torch::sparse_coo_tensor(
        torch::tensor({{3, 3}}), torch::tensor({{1.5F, 2.F}, {1.5F, 2.F}}), {10, 2});
    EXPECT_EQ(clip_gradients({table}, 1, group), 5);
    EXPECT_TRUE(torch::allclose(table.grad().to_dense()[3], torch::tensor({0.6F, 0.8F})));
  });
}

TEST(LossScaler, AllRanksLeaveOutTheSameSteps) {
  everywhere([](Group& group) {
    const auto net = std::make_shared<torch::nn::LinearImpl>(4, 1);
    net->to(torch::kHalf);
    DistributedDataParallel ddp(net, group, {.check_finite = false});
    LossScaler scaler({.scale = 1024, .growth_interval = 2});
    std::vector<bool> taken;
    std::vector<double> scales;
    for (const float factor : {1.0F, 3e38F, 1.0F, 2.0F, 1.0F}) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
      // One rank alone overflows.
      const float mine = group.rank() + 1 == group.size() ? factor : 1.0F;
      const auto loss = (net->weight.to(torch::kFloat).sum() * mine);
      scaler.scale(loss).backward();
      taken.push_back(scaler.unscale(net->parameters()));
      scales.push_back(scaler.current_scale());
      if (taken.back()) {
        const double expected = (group.size() - 1 + factor) / group.size();
        EXPECT_NEAR(net->weight.grad()[0][0].item<float>(), expected, 1e-3 * expected);
      }
    }
    EXPECT_THAT(taken, ::testing::ElementsAre(true, false, true, true, true));
    EXPECT_THAT(scales, ::testing::ElementsAre(1024, 512, 512, 1024, 1024));
  });
  EXPECT_THAT(error_of([] { LossScaler({.backoff = 2}); }), HasSubstr("backoff"));
}

TEST(Accumulate, EveryThirdPassReducesTheMeanOfAll) {
  everywhere([](Group& group) {
    struct Net : torch::nn::Module {
      Net() { w = register_parameter("w", torch::ones({2})); }
      torch::Tensor w;
    };
    const auto net = std::make_shared<Net>();
    DistributedDataParallel ddp(net, group, {.accumulate = 3});
    const double ranks_mean = (group.size() - 1) / 2.0;
    const auto pass = [&](double x) {
      (net->w * (x + group.rank())).sum().backward();
      return ddp.is_reduced();
    };
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      EXPECT_FALSE(pass(1));
      EXPECT_FALSE(pass(2));
      EXPECT_TRUE(pass(6));
      EXPECT_TRUE(torch::allclose(net->w.grad(), torch::full({2}, 3 + ranks_mean)));
    }
    // Two are left at the end of an epoch.
    net->zero_grad();
    EXPECT_FALSE(pass(1));
    ddp.reduce_next();
    EXPECT_TRUE(pass(2));
    EXPECT_TRUE(torch::allclose(net->w.grad(), torch::full({2}, 1.5 + ranks_mean)));
    EXPECT_FALSE(pass(1));
  });
}

}  // namespace
}  // namespace lockstep
