#include "lockstep/torch/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error_of.h"
#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TensorView, MeetsByIndexWhateverTheLayouts) {  // S-NUM-05
  const auto numbered = torch::arange(2 * 16 * 8 * 12, torch::kFloat).view({2, 16, 8, 12});
  for (const bool first : {true, false}) {
    const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
      const bool last = (group.rank() == 0) == first;
      const auto format = last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
      auto tensor =
          (group.rank() == 0 ? numbered.clone() : torch::zeros_like(numbered)).contiguous(format);
      const auto strides = tensor.strides().vec();
      group.broadcast(tensor, 0);
      EXPECT_TRUE(torch::equal(tensor, numbered));
      EXPECT_EQ(tensor.strides().vec(), strides);
      auto wide = torch::zeros({2, 16, 8, 24});
      auto part = wide.slice(3, 0, 24, group.rank() + 1).slice(3, 0, 12);  // with gaps on rank 1
      part.copy_(numbered);
      group.all_reduce(part);
      EXPECT_TRUE(torch::equal(part, 2 * numbered));
      EXPECT_EQ(wide.sum().item<float>(), part.sum().item<float>());
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(TensorView, GradientsOfChannelsLastEqualThoseOfRowMajor) {  // S-NUM-05
  std::vector<torch::Tensor> gradients(2);
  for (const bool last : {false, true}) {
    const auto errors = run_ranks(2, Transport::shm, [&](Group& group) {
      torch::nn::Conv2d conv(nullptr);
      {
        static std::mutex mutex;  // the generator is the process's
        const std::lock_guard lock(mutex);
        torch::manual_seed(1);
        conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 1));
      }
      auto input = torch::arange(2 * 16 * 5 * 5, torch::kFloat).view({2, 16, 5, 5}).remainder(7);
      input = input * (group.rank() + 1);
      if (last) {
        input = input.contiguous(at::MemoryFormat::ChannelsLast);
        torch::NoGradGuard guard;
        conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
      }
      DistributedDataParallel ddp(conv.ptr(), group);
      conv->forward(input).square().mean().backward();
      if (group.rank() == 1) gradients[last ? 1 : 0] = conv->weight.grad().clone();
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
  EXPECT_TRUE(torch::allclose(gradients[0], gradients[1]));
}

TEST(TensorView, ComplexTensorsAreAddedByTheirParts) {
  const auto errors = run_ranks(3, Transport::tcp, [](Group& group) {
    auto parts = torch::arange(24, torch::kDouble).view({3, 4, 2});
    auto tensor = torch::view_as_complex(parts);
    if (group.rank() == 2) tensor = tensor.t().contiguous().t();
    group.all_reduce(tensor);
    EXPECT_TRUE(torch::equal(torch::view_as_real(tensor.contiguous()),
                             3 * torch::arange(24, torch::kDouble).view({3, 4, 2})));
    EXPECT_THROW(group.all_reduce(tensor, Reduce::product), Error);
    EXPECT_THROW(group.all_reduce(tensor.conj()), Error);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TensorView, ScalarsKeepTheirDimensions) {  // S-NUM-14
  const auto errors = run_ranks(2, Transport::shm, [](Group& group) {
    auto scalar = torch::tensor(3.14F);
    group.all_reduce(scalar);
    EXPECT_EQ(scalar.dim(), 0);
    EXPECT_EQ(scalar.item<float>(), 6.28F);
    group.broadcast(scalar);
    auto two = torch::zeros({2});
    group.all_gather(two, scalar);
    EXPECT_TRUE(torch::equal(two, torch::full({2}, 6.28F)));
    EXPECT_THROW(group.reduce_scatter(scalar, torch::tensor(1.0F)), Error);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TensorView, SparseTensorsAreRefusedWithLayoutAndType) {  // S-NUM-12
  Group group{Settings()};
  for (const auto type : {torch::kFloat, torch::kHalf}) {
    const auto indices = torch::tensor({{1, 1}}, torch::kLong);
    const auto sparse = torch::sparse_coo_tensor(indices, torch::ones({2}, type), {6});
    const char* name = type == torch::kHalf ? "Half" : "Float";
    const Error error = error_of([&] { group.all_reduce(sparse); });
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Sparse"), HasSubstr(name)));
  }
}

TEST(TensorView, RefusesWhatCannotBeReduced) {
  Group group{Settings()};
  EXPECT_THROW(group.all_reduce(torch::ones({4, 1}).expand({4, 4})), Error);
  EXPECT_THROW(group.all_reduce(torch::Tensor()), Error);
  const Error error = error_of([&] { group.all_reduce(torch::ones({2}, torch::kShort)); });
  EXPECT_EQ(error.code(), Code::unsupported);
}

}  // namespace
}  // namespace lockstep
