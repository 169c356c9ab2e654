#include "lockstep/torch/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/replicas.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::nn::BatchNormOptions;

constexpr int kChannels = 5;

// `rows` × kChannels × others, every element its own.
torch::Tensor values(std::int64_t rows, std::vector<std::int64_t> others,
                     torch::ScalarType type = torch::kDouble) {
  std::vector<std::int64_t> sizes = {rows, kChannels};
  sizes.insert(sizes.end(), others.begin(), others.end());
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return (torch::sin(torch::arange(count, torch::kDouble) * 1.7) * 3 + 0.5).view(sizes).to(type);
}

torch::Tensor copy_of(const torch::Tensor& tensor) {
  return tensor.detach().clone();
}

// What BatchNorm makes of a batch in one process.
template <class Norm>
struct Alone {
  Alone(BatchNormOptions options, const torch::Tensor& batch, const torch::Tensor& slope)
      : norm(options) {
    norm->to(batch.scalar_type());
    input = copy_of(batch).requires_grad_(true);
    output = norm(input);
    (output * slope).sum().backward();
  }
  Norm norm;
  torch::Tensor input, output;
};

// Ranks with `rows` of the batch each against BatchNorm with all of it.
template <class Norm>
void expect_equal_to_one_process(const std::vector<std::int64_t>& rows,
                                 const std::vector<std::int64_t>& others,
                                 const BatchNormOptions& options) {
  std::int64_t total = 0;
  for (const std::int64_t count : rows) total += count;
  const torch::Tensor batch = values(total, others);
  const torch::Tensor slope = torch::cos(batch * 5);
  Alone<Norm> alone(options, batch, slope);
  const auto ranks = static_cast<int>(rows.size());
  std::vector<torch::Tensor> of_weight(rows.size()), of_bias(rows.size());
  const auto errors = run_ranks(ranks, Transport::shm, [&](Group& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::int64_t begin = 0;
    for (std::size_t before = 0; before < rank; ++before) begin += rows[before];
    SyncBatchNorm norm(options, group);
    norm->to(torch::kDouble);
    const auto part = [&](const torch::Tensor& all) { return all.narrow(0, begin, rows[rank]); };
    const torch::Tensor input = copy_of(part(batch)).requires_grad_(true);
    const torch::Tensor output = norm(input);
    (output * part(slope)).sum().backward();
    EXPECT_TRUE(torch::allclose(output, part(alone.output), 1e-10, 1e-12));
    EXPECT_TRUE(torch::allclose(input.grad(), part(alone.input.grad()), 1e-9, 1e-11));
    if (norm->weight.defined()) {
      of_weight[rank] = norm->weight.grad();
      of_bias[rank] = norm->bias.grad();
    }
    ASSERT_EQ(norm->running_mean.defined(), alone.norm->running_mean.defined());
    if (!norm->running_mean.defined()) return;
    EXPECT_TRUE(torch::allclose(norm->running_mean, alone.norm->running_mean, 1e-10, 1e-12));
    EXPECT_TRUE(torch::allclose(norm->running_var, alone.norm->running_var, 1e-10, 1e-12));
    EXPECT_EQ(norm->num_batches_tracked.template item<int>(), 1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  if (!alone.norm->weight.defined()) return;
  EXPECT_TRUE(torch::allclose(torch::stack(of_weight).sum(0), alone.norm->weight.grad(), 1e-9));
  EXPECT_TRUE(torch::allclose(torch::stack(of_bias).sum(0), alone.norm->bias.grad(), 1e-9));
}

TEST(SyncBatchNorm, UnequalBatchesCountByTheirElements) {  // S-NUM-04
  std::vector<torch::Tensor> means(2), variances(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    SyncBatchNorm norm(BatchNormOptions(1), group);
    const auto batch = group.rank() == 0 ? torch::tensor({1.0F, 2.0F, 3.0F}).view({3, 1})
                                         : torch::tensor({10.0F}).view({1, 1});
    const torch::Tensor output = norm(batch);
    EXPECT_TRUE(torch::allclose(output, (batch - 4.0) / std::sqrt(12.5 + 1e-5), 0, 1e-6));
    EXPECT_NEAR(norm->running_mean.item<double>(), 0.4, 1e-6);
    EXPECT_NEAR(norm->running_var.item<double>(), 2.5666667, 1e-6);
    means[static_cast<std::size_t>(group.rank())] = norm->running_mean;
    variances[static_cast<std::size_t>(group.rank())] = norm->running_var;
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_TRUE(torch::equal(means[0], means[1]));
  EXPECT_TRUE(torch::equal(variances[0], variances[1]));
}

TEST(SyncBatchNorm, EqualsBatchNormOfOneProcessForAnyBatches) {
  const BatchNormOptions options(kChannels);
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{6}, {4, 4}, {1, 7}, {0, 5}, {2, 0, 3}, {1, 1, 1, 6}}) {
    expect_equal_to_one_process<torch::nn::BatchNorm1d>(rows, {}, options);
    expect_equal_to_one_process<torch::nn::BatchNorm1d>(rows, {11}, options);
    expect_equal_to_one_process<torch::nn::BatchNorm2d>(rows, {3, 7}, options);
    expect_equal_to_one_process<torch::nn::BatchNorm3d>(rows, {2, 3, 2}, options);
  }
}

TEST(SyncBatchNorm, KeepsTheOptionsOfBatchNorm) {
  for (const auto& options : {BatchNormOptions(kChannels).eps(0.3).momentum(0.7),
                              BatchNormOptions(kChannels).affine(false),
                              BatchNormOptions(kChannels).momentum(torch::nullopt),
                              BatchNormOptions(kChannels).track_running_stats(false)}) {
    expect_equal_to_one_process<torch::nn::BatchNorm2d>({3, 1}, {2, 2}, options);
  }
}

TEST(SyncBatchNorm, WithoutMomentumTheRunningStatisticsAreTheMeanOfAllSteps) {
  const BatchNormOptions options = BatchNormOptions(kChannels).momentum(torch::nullopt);
  torch::nn::BatchNorm1d alone(options);
  for (int step = 1; step < 4; ++step) alone(values(6, {}, torch::kFloat) * step);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    SyncBatchNorm norm(options, group);
    for (int step = 1; step < 4; ++step) {
      norm((values(6, {}, torch::kFloat) * step).narrow(0, group.rank() * 2, 2 + group.rank() * 2));
    }
    EXPECT_TRUE(torch::allclose(norm->running_mean, alone->running_mean));
    EXPECT_TRUE(torch::allclose(norm->running_var, alone->running_var));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Layouts, the types, and what autograd hands over: each against row-major f64.
TEST(SyncBatchNorm, TakesAnyLayoutAndFloatingType) {
  const auto run = [](Group& group, const torch::Tensor& given) {
    SyncBatchNorm norm(BatchNormOptions(kChannels), group);
    if (given.scalar_type() == torch::kDouble) norm->to(torch::kDouble);
    const torch::Tensor input = given.detach().requires_grad_(true);
    const torch::Tensor output = norm(input);
    EXPECT_EQ(output.scalar_type(), given.scalar_type());
    EXPECT_EQ(output.suggest_memory_format(), given.suggest_memory_format());
    const torch::Tensor slope = torch::sin(output.detach().to(torch::kDouble) * 3);
    (output.to(torch::kDouble) * slope).sum().backward();
    EXPECT_EQ(input.grad().scalar_type(), given.scalar_type());
    return std::vector<torch::Tensor>{output, input.grad(), norm->weight.grad(), norm->bias.grad()};
  };
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    const torch::Tensor exact =
        values(8, {4, 6}).narrow(0, group.rank() * 3, 3 + group.rank() * 2).contiguous();
    const auto expected = run(group, exact);
    const auto expect_close = [&](const torch::Tensor& input, double tolerance) {
      const auto results = run(group, input);
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(
            torch::allclose(results[i].to(torch::kDouble), expected[i], tolerance, tolerance * 4))
            << i << " " << input.dtype() << "\n"
            << (results[i].to(torch::kDouble) - expected[i]).abs().max();
      }
    };
    expect_close(exact.contiguous(torch::MemoryFormat::ChannelsLast), 1e-11);
    expect_close(exact.transpose(2, 3).contiguous().transpose(2, 3), 1e-11);
    expect_close(torch::cat({exact, exact}, 1).narrow(1, 0, kChannels), 1e-11);
    expect_close(exact.to(torch::kFloat), 1e-5);
    expect_close(exact.to(torch::kFloat).contiguous(torch::MemoryFormat::ChannelsLast), 1e-5);
    expect_close(exact.to(torch::kHalf), 0.02);
    expect_close(exact.to(torch::kBFloat16), 0.1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SyncBatchNorm, ALargeMeanCostsNoPrecision) {
  const torch::Tensor batch = (values(8, {16}) + 30'000).to(torch::kFloat);
  const Alone<torch::nn::BatchNorm1d> exact(BatchNormOptions(kChannels), batch.to(torch::kDouble),
                                            torch::ones({1}, torch::kDouble));
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    SyncBatchNorm norm(BatchNormOptions(kChannels), group);
    const torch::Tensor output = norm(batch.narrow(0, group.rank() * 4, 4));
    const torch::Tensor expected = exact.output.narrow(0, group.rank() * 4, 4).to(torch::kFloat);
    EXPECT_LE((output - expected).abs().max().item<double>(), 1e-6);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SyncBatchNorm, OneValuePerChannelInAllIsRefusedOnEveryRank) {
  std::vector<int> refused(3);
  const auto errors = run_ranks(3, Transport::shm, [&](Group& group) {
    SyncBatchNorm norm(BatchNormOptions(kChannels), group);
    try {
      norm(values(group.rank() == 1 ? 1 : 0, {1}, torch::kFloat));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("Expected more than 1 value per channel when training"));
      ++refused[static_cast<std::size_t>(group.rank())];
    }
    EXPECT_EQ(norm->num_batches_tracked.item<int>(), 0);
    norm(values(1, {1}, torch::kFloat));  // the group goes on
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(refused, Each(1));
}

TEST(SyncBatchNorm, EvaluationExchangesNothing) {
  torch::nn::BatchNorm2d alone(BatchNormOptions(kChannels).momentum(0.5));
  alone(values(4, {3, 3}, torch::kFloat));
  alone->eval();
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    SyncBatchNorm norm(*alone);
    EXPECT_FALSE(norm->is_training());
    convert_sync_batch_norm(norm, group);
    if (group.rank() == 0) {
      const torch::Tensor input = values(1, {3, 3}, torch::kFloat);
      EXPECT_TRUE(torch::equal(norm(input), alone(input)));
      for (const auto type : {torch::kHalf, torch::kBFloat16}) {
        const torch::Tensor half = norm(input.to(type));
        EXPECT_EQ(half.scalar_type(), type);
        EXPECT_TRUE(torch::allclose(half.to(torch::kFloat), alone(input), 0.02, 0.02));
      }
    }
    group.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SyncBatchNorm, RefusesWhatItCannotDo) {
  Group group{Settings()};
  SyncBatchNorm norm(BatchNormOptions(kChannels), group);
  EXPECT_THROW(norm(torch::ones({4})), Error);
  EXPECT_THROW(norm(torch::ones({4, kChannels + 1})), Error);
  EXPECT_THROW(norm(torch::ones({4, kChannels}, torch::kLong)), Error);
  EXPECT_THROW(norm(torch::Tensor()), Error);
  const torch::Tensor input = values(4, {}, torch::kFloat).requires_grad_(true);
  try {
    torch::autograd::grad({norm(input).pow(2).sum()}, {input}, {}, true, true);
    ADD_FAILURE() << "a second derivative";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("create_graph"));
  }
  SyncBatchNorm without(BatchNormOptions{kChannels});
  try {
    without(input);
    ADD_FAILURE() << "trained without a group";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("convert_sync_batch_norm"));
  }
  without->eval();
  EXPECT_TRUE(torch::allclose(without(input), input, 1e-4, 1e-4));
}

// A rank without samples gives the others' gradients their sums, though its own input needs none.
TEST(SyncBatchNorm, ARankWhoseInputNeedsNoGradientTakesPart) {
  const auto errors = run_ranks(2, Transport::tcp, [&](Group& group) {
    SyncBatchNorm norm(BatchNormOptions(kChannels), group);
    torch::Tensor input = values(group.rank() == 0 ? 4 : 0, {}, torch::kFloat);
    if (group.rank() == 0) input.requires_grad_(true);
    norm(input).pow(2).sum().backward();
    EXPECT_EQ(input.grad().defined(), group.rank() == 0);
    EXPECT_TRUE(norm->weight.grad().defined());
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// A Sequential that can be an element of another (its own forward is a template).
struct Block : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(torch::Tensor x) { return SequentialImpl::forward(x); }
};

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(6, kChannels));
    norm = register_module("norm", SyncBatchNorm(kChannels));
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Conv1d(kChannels, 4, 1), torch::nn::BatchNorm1d(4),
                                      std::make_shared<Block>(torch::nn::BatchNorm1d(4))));
    other = register_module("other", torch::nn::Linear(1, 1));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return body->forward(torch::tanh(norm(first(x))).unsqueeze(2)).flatten(1).sum(1);
  }
  torch::nn::Linear first{nullptr}, other{nullptr};
  SyncBatchNorm norm{nullptr};
  torch::nn::Sequential body{nullptr};
};

torch::Tensor rows_of(int step, std::int64_t begin, std::int64_t count) {
  return torch::sin(torch::arange(7 * 6, torch::kDouble) * (0.37 + step))
      .view({7, 6})
      .narrow(0, begin, count);
}

void train(Net& net, std::int64_t begin, std::int64_t count, double weight) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    // Ranks that use other parameters submit their buckets in another order; the layers' exchanges
    // must not care.
    auto loss = (net.forward(rows_of(step, begin, count)) - 1).pow(2).mean() * weight;
    if (begin > 0) loss = loss + net.other(torch::zeros({1, 1}, torch::kDouble)).sum() * 0;
    loss.backward();
    optimizer.step();
  }
}

TEST(SyncBatchNorm, TrainingWithUnequalBatchesEqualsOneProcess) {
  const auto alone = std::make_shared<Net>();
  Group one{Settings()};
  EXPECT_EQ(convert_sync_batch_norm(alone, one), 3);
  train(*alone, 0, 7, 1);
  const std::vector<std::vector<std::int64_t>> cases = {
      {7}, {3, 4}, {1, 6}, {2, 1, 4}, {1, 1, 1, 4}};
  for (const auto& rows : cases) {
    const auto ranks = static_cast<int>(rows.size());
    std::vector<std::shared_ptr<Net>> nets;
    for (int rank = 0; rank < ranks; ++rank) nets.push_back(std::make_shared<Net>());
    std::vector<std::uint64_t> sums(rows.size());
    const auto errors = run_ranks(ranks, Transport::shm, [&](Group& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      std::int64_t begin = 0;
      for (std::size_t before = 0; before < rank; ++before) begin += rows[before];
      convert_sync_batch_norm(nets[rank], group);
      DistributedDataParallel ddp(nets[rank], group, {1});
      train(*nets[rank], begin, rows[rank], static_cast<double>(ranks * rows[rank]) / 7);
      sums[rank] = parameter_checksum(*nets[rank], true);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_THAT(sums, Each(sums[0]));
    for (const auto& item : alone->named_parameters()) {
      EXPECT_TRUE(
          torch::allclose(*nets[0]->named_parameters().find(item.key()), item.value(), 1e-8, 1e-10))
          << item.key();
    }
    for (const auto& item : alone->named_buffers()) {
      EXPECT_TRUE(
          torch::allclose(*nets[0]->named_buffers().find(item.key()), item.value(), 1e-8, 1e-10))
          << item.key();
    }
  }
}

TEST(SyncBatchNorm, ClonesAndCheckpointsAreThoseOfBatchNorm) {
  Group group{Settings()};
  torch::nn::BatchNorm2d plain(kChannels);
  plain(values(4, {2, 2}, torch::kFloat));
  std::stringstream file;
  torch::save(plain, file);
  SyncBatchNorm loaded(BatchNormOptions(kChannels), group);
  torch::load(loaded, file);
  EXPECT_EQ(parameter_checksum(*loaded, true), parameter_checksum(*plain, true));
  const auto clone = std::dynamic_pointer_cast<SyncBatchNormImpl>(loaded->clone());
  EXPECT_EQ(parameter_checksum(*clone, true), parameter_checksum(*plain, true));
  EXPECT_NE(clone->weight.data_ptr(), loaded->weight.data_ptr());
  clone->forward(values(4, {}, torch::kFloat));
  std::ostringstream text;
  text << *clone;
  EXPECT_EQ(text.str(),
            "lockstep::SyncBatchNorm(5, eps=1e-05, momentum=0.1, affine=true, "
            "track_running_stats=true, ranks=1)");
}

TEST(ConvertSyncBatchNorm, KeepsTensorsModesAndOptions) {
  Group group{Settings()};
  torch::nn::BatchNorm3d frozen(BatchNormOptions(2).eps(0.25));
  frozen->weight.set_requires_grad(false);
  frozen->eval();
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  net->push_back("frozen", frozen);
  frozen = nullptr;
  const auto before = net->named_parameters();
  const auto buffers = net->named_buffers();
  EXPECT_EQ(convert_sync_batch_norm(net, group), 2);
  const auto after = net->named_parameters();
  ASSERT_EQ(after.keys(), before.keys());
  for (const auto& item : before) {
    EXPECT_EQ(after[item.key()].unsafeGetTensorImpl(), item.value().unsafeGetTensorImpl());
    EXPECT_EQ(after[item.key()].requires_grad(), item.key() != "frozen.weight");
  }
  for (const auto& item : buffers)
    EXPECT_TRUE(net->named_buffers()[item.key()].is_same(item.value()));
  EXPECT_FALSE(net->ptr<SyncBatchNormImpl>(2)->is_training());
  EXPECT_EQ(net->ptr<SyncBatchNormImpl>(2)->options.eps(), 0.25);
  net->forward(torch::ones({4, 2}));
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int>(), 1);
  EXPECT_EQ(convert_sync_batch_norm(net, group), 2);  // the same ones again
  EXPECT_EQ(convert_sync_batch_norm(torch::nn::Linear(1, 1), group), 0);
}

TEST(ConvertSyncBatchNorm, ALayerInSeveralPlacesStaysOne) {
  Group group{Settings()};
  torch::nn::BatchNorm1d norm(2);
  const auto inner = std::make_shared<Block>(norm);
  torch::nn::Sequential net(norm, inner, torch::nn::Linear(2, 2), inner);
  norm = nullptr;
  EXPECT_EQ(convert_sync_batch_norm(net, group), 1);
  EXPECT_EQ(net->ptr(0), inner->ptr(0));
  net->forward(torch::ones({4, 2}));
  EXPECT_EQ(net->ptr<SyncBatchNormImpl>(0)->num_batches_tracked.item<int>(), 3);
}

struct Typed : torch::nn::Module {
  Typed() {
    bn = register_module("bn", torch::nn::BatchNorm2d(2));
    good = register_module("good", SyncBatchNorm(2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return good(bn(x)); }
  torch::nn::BatchNorm2d bn{nullptr};
  SyncBatchNorm good{nullptr};
};

std::string refusal(const std::shared_ptr<torch::nn::Module>& module) {
  Group group{Settings()};
  try {
    convert_sync_batch_norm(module, group);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    return error.what();
  }
}

TEST(ConvertSyncBatchNorm, WhatIsCalledByItsTypeIsNamedAndNothingIsChanged) {
  const auto typed = std::make_shared<Typed>();
  torch::nn::Sequential net(torch::nn::BatchNorm1d(3));
  net->push_back("typed", typed);
  EXPECT_THAT(refusal(net.ptr()),
              AllOf(HasSubstr("'typed.bn' (torch::nn::BatchNorm2d, which lockstep::"),
                    HasSubstr("Typed calls by its type)"), HasSubstr("lockstep::SyncBatchNorm"),
                    ::testing::Not(HasSubstr("'0'"))));
  EXPECT_NE(net[0]->as<torch::nn::BatchNorm1d>(), nullptr);
  EXPECT_THROW(typed->good(torch::ones({2, 2})), Error);  // it has got no group

  torch::nn::ModuleList list(torch::nn::BatchNorm1d(3), torch::nn::Linear(1, 1));
  EXPECT_THAT(refusal(list.ptr()),
              HasSubstr("'0' (torch::nn::BatchNorm1d, which torch::nn::ModuleList calls"));
  using Item = std::pair<std::string, std::shared_ptr<torch::nn::Module>>;
  torch::nn::ModuleDict dict(std::vector<Item>{{"a", torch::nn::BatchNorm3d(3).ptr()}});
  EXPECT_THAT(refusal(dict.ptr()), HasSubstr("'a' (torch::nn::BatchNorm3d, which"));
  EXPECT_THAT(refusal(torch::nn::BatchNorm1d(3).ptr()), HasSubstr("the module itself"));

  torch::nn::BatchNorm1d held(3);
  EXPECT_THAT(refusal(torch::nn::Sequential(held).ptr()),
              HasSubstr("'0' (torch::nn::BatchNorm1d, which a member or variable outside"));
}

TEST(ConvertSyncBatchNorm, AllRanksRefuseWhatOneRefuses) {
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    torch::nn::BatchNorm1d norm(3);
    torch::nn::Sequential net(norm);
    if (group.rank() == 0) norm = nullptr;
    convert_sync_batch_norm(net, group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("which a member or variable outside its Sequential")));
  const auto differ = run_ranks(2, Transport::shm, [&](Group& group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(3));
    if (group.rank() == 0) net->push_back(torch::nn::BatchNorm1d(3));
    convert_sync_batch_norm(net, group);
  });
  EXPECT_THAT(differ, Each(HasSubstr("2 batch normalizations on rank 0, 1 ")));
}

TEST(ConvertSyncBatchNorm, TheModuleMayOutliveTheGroup) {
  std::vector<torch::nn::Sequential> nets(2);
  const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
    auto& net = nets[static_cast<std::size_t>(group.rank())];
    net = torch::nn::Sequential(torch::nn::BatchNorm1d(3));
    convert_sync_batch_norm(net, group);
    Group moved = std::move(group);
    net->forward(torch::ones({2, 3}));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace lockstep
