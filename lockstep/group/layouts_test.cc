// Tensors that lie in memory in another order than their indices say, and complex numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <numeric>

#include "lockstep/base/error_of.h"
#include "lockstep/group/group.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Sizes = std::vector<std::int64_t>;

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// A tensor of any strides, with what lies between its elements.
template <class T>
class Strided {
 public:
  Strided(Sizes sizes, Sizes strides) : sizes_(std::move(sizes)), strides_(std::move(strides)) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < sizes_.size(); ++d) last += (sizes_[d] - 1) * strides_[d];
    memory_.assign(static_cast<std::size_t>(last + 1), kGap);
  }

  std::int64_t count() const { return product(sizes_); }
  // By logical index.
  T& operator[](std::int64_t index) { return memory_[static_cast<std::size_t>(offset(index))]; }
  TensorView view(DType dtype) {
    TensorView view(memory_.data(), count(), dtype);
    view.sizes = sizes_;
    view.strides = strides_;
    return view;
  }
  // How many places hold no element, and whether nobody has written there.
  bool gaps_are_whole() {
    std::vector<bool> used(memory_.size());
    for (std::int64_t i = 0; i < count(); ++i) used[static_cast<std::size_t>(offset(i))] = true;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i] && memory_[i] != kGap) return false;
    }
    return true;
  }

 private:
  static constexpr T kGap = T(77);
  std::int64_t offset(std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      offset += index % sizes_[d] * strides_[d];
      index /= sizes_[d];
    }
    return offset;
  }

  const Sizes sizes_;
  const Sizes strides_;
  std::vector<T> memory_;
};

// [2, 16, 8, 12] in several orders; ranks that meet have different ones.
constexpr std::int64_t kN = 2, kC = 16, kH = 8, kW = 12;
const Sizes kSizes = {kN, kC, kH, kW};
const std::vector<Sizes> kLayouts = {
    {kC * kH * kW, kH* kW, kW, 1},                 // row-major
    {kH * kW * kC, 1, kW* kC, kC},                 // channels last
    {1, kN, kN* kC, kN* kC* kH},                   // transposed whole
    {2 * kC * kH * kW, 2 * kH* kW, 2 * kW, 2},     // every second element
    {kC * kH * (kW + 5), kH*(kW + 5), kW + 5, 1},  // rows with gaps
};

class OnEachTransport : public ::testing::TestWithParam<Transport> {
 protected:
  void run(int ranks, const std::function<void(Group&)>& body) {
    EXPECT_THAT(run_ranks(ranks, GetParam(), body), Each(IsEmpty()));
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, OnEachTransport,
                         ::testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& of) { return of.param == Transport::tcp ? "tcp" : "shm"; });

TEST_P(OnEachTransport, BroadcastMeetsByIndexAndEachKeepsItsLayout) {  // S-NUM-05
  for (std::size_t first = 0; first < kLayouts.size(); ++first) {
    for (std::size_t second = 0; second < kLayouts.size(); ++second) {
      run(2, [&](Group& group) {
        Strided<float> tensor(kSizes, kLayouts[group.rank() == 0 ? first : second]);
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
          tensor[i] = group.rank() == 0 ? static_cast<float>(i) : -1.0F;
        }
        group.broadcast(tensor.view(DType::f32), 0);
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
          ASSERT_EQ(tensor[i], static_cast<float>(i)) << first << ' ' << second;
        }
        EXPECT_TRUE(tensor.gaps_are_whole());
      });
    }
  }
}

TEST_P(OnEachTransport, EveryOperationTakesEveryLayoutOnEveryRank) {
  constexpr int kRanks = 5;
  run(kRanks, [&](Group& group) {
    const auto rank = group.rank();
    const auto value = [](int of, std::int64_t i) { return static_cast<std::int32_t>(i) * 8 + of; };
    for (std::size_t shift = 0; shift < kLayouts.size(); ++shift) {
      const auto layout = [&](std::size_t of) {
        return kLayouts[(static_cast<std::size_t>(rank) + shift + of) % kLayouts.size()];
      };
      Strided<std::int32_t> one(kSizes, layout(0)), other(kSizes, layout(1));
      Sizes all_sizes = {kRanks, kN, kC, kH, kW};
      Sizes all_strides = layout(2);
      all_strides.insert(all_strides.begin(), 3 * one.count());
      Strided<std::int32_t> all(all_sizes, all_strides);
      const auto fill = [&](auto& tensor) {
        for (std::int64_t i = 0; i < tensor.count(); ++i) tensor[i] = value(rank, i);
      };
      const std::int64_t count = one.count();
      const auto view = [](auto& tensor) { return tensor.view(DType::i32); };
      const auto sum_at = [&](std::int64_t i) {
        return kRanks * (kRanks - 1) / 2 + kRanks * 8 * i;
      };

      fill(one);
      group.all_reduce(view(one));
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(one[i], sum_at(i));
      fill(one);
      group.all_reduce(view(other), view(one));
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(other[i], sum_at(i));
      group.reduce(view(one), 3);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(one[i], rank == 3 ? sum_at(i) : value(rank, i));
      }
      fill(one);
      group.async().all_gather(view(all), view(one)).wait();
      for (std::int64_t i = 0; i < all.count(); ++i) {
        ASSERT_EQ(all[i], value(static_cast<int>(i / count), i % count));
      }
      fill(all);
      group.reduce_scatter(view(one), view(all));
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(one[i], sum_at(rank * count + i));
      fill(one);
      group.gather(view(all), view(one), 1);
      for (std::int64_t i = 0; i < all.count() && rank == 1; ++i) {
        ASSERT_EQ(all[i], value(static_cast<int>(i / count), i % count));
      }
      fill(all);
      group.scatter(view(other), view(all), 2);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(other[i], value(2, rank * count + i));
      Strided<std::int32_t> came(all_sizes, all_strides);
      group.all_to_all(view(came), view(all));
      for (std::int64_t i = 0; i < all.count(); ++i) {
        ASSERT_EQ(came[i], value(static_cast<int>(i / count), rank * count + i % count));
      }
      const Work sent = group.async().send(view(all), (rank + 1) % kRanks);
      const int from = (rank + kRanks - 1) % kRanks;
      group.receive(view(came), from);
      sent.wait();
      for (std::int64_t i = 0; i < all.count(); ++i) ASSERT_EQ(came[i], value(from, i));
      EXPECT_TRUE(one.gaps_are_whole() && other.gaps_are_whole() && all.gaps_are_whole());
    }
  });
}

TEST_P(OnEachTransport, EmptyTensorsOfAnyStridesAreNoOps) {  // S-NUM-07
  run(2, [](Group& group) {
    const Sizes sizes = {0, 3}, strides = {1, 7};
    float none = 5;
    TensorView view(&none, 0, DType::f32);
    view.sizes = sizes;
    view.strides = strides;
    group.all_reduce(view);
    group.broadcast(view);
    group.all_gather(view, view);
    group.reduce_scatter(view, view);
    EXPECT_EQ(none, 5);
  });
}

TEST_P(OnEachTransport, ComplexNumbersAreAddedByTheirParts) {
  using Complex = std::complex<double>;
  run(3, [](Group& group) {
    Strided<Complex> rows({3, 4}, {4, 1}), columns({3, 4}, {1, 3});
    auto& mine = group.rank() == 1 ? columns : rows;
    for (std::int64_t i = 0; i < 12; ++i) {
      mine[i] = {static_cast<double>(i), static_cast<double>(group.rank())};
    }
    TensorView view = mine.view(DType::f64);
    view.count *= 2;
    view.complex = true;
    EXPECT_THROW(group.all_reduce(view, Reduce::product), Error);
    EXPECT_THROW(group.all_reduce(view, Reduce::max), Error);
    group.all_reduce(view);
    for (std::int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(mine[i], Complex(static_cast<double>(3 * i), 3));
    }
    group.broadcast(view, 2);
    group.all_reduce(view, Reduce::mean);
    EXPECT_EQ(mine[11], Complex(33, 3));
  });
}

TEST(Layouts, WhatCannotBeWrittenIsRefusedAndTheGroupStaysUsable) {
  const auto errors = run_ranks(2, Transport::shm, [](Group& group) {
    std::vector<float> values(12, 1);
    const Sizes sizes = {3, 4}, expanded = {0, 1}, transposed = {1, 3}, short_sizes = {3, 3};
    TensorView view(values.data(), 12, DType::f32);
    view.sizes = sizes;
    view.strides = expanded;
    EXPECT_THAT(error_of([&] { group.all_reduce(view); }).what(), HasSubstr("along dimension 0"));
    std::vector<float> sums(12);
    group.all_reduce({sums.data(), 12, DType::f32}, view);  // to be read it may be expanded
    EXPECT_THAT(sums, Each(2));
    TensorView other(values.data(), 12, DType::f32);
    other.sizes = sizes;
    other.strides = transposed;
    const TensorView plain(values.data(), 12, DType::f32);
    EXPECT_THAT(error_of([&] { group.all_reduce(plain, other); }).what(), HasSubstr("overlaps"));
    other.sizes = short_sizes;
    EXPECT_THAT(error_of([&] { group.all_reduce(other); }).what(),
                HasSubstr("sizes [3, 3] make 9"));
    group.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace lockstep
