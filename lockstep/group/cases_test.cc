// Failures that people have reported of other systems, as tests; each names its case.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lockstep/group/expected_results.h"
#include "lockstep/group/group.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class T>
TensorView view(std::vector<T>& values, DType dtype) {
  return {values.data(), static_cast<std::int64_t>(values.size()), dtype};
}

class CaseOnEachTransport : public ::testing::TestWithParam<Transport> {
 protected:
  std::vector<std::string> run(int ranks, const std::function<void(Group&)>& body) {
    return run_ranks(ranks, GetParam(), body);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, CaseOnEachTransport,
                         ::testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& of) { return of.param == Transport::tcp ? "tcp" : "shm"; });

TEST_P(CaseOnEachTransport, ShapesThatDifferByARow) {  // S-HANG-01 (b); (a): group_test.cc
  const auto errors = run(4, [](Group& group) {
    std::vector<float> values(group.rank() == 0 ? 2560 : 5120, 1);
    group.all_reduce(view(values, DType::f32));
    FAIL() << "no rank may succeed";
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("all_reduce number 0"), HasSubstr("f32[2560]"),
                                 HasSubstr("f32[5120]"))));
}

TEST_P(CaseOnEachTransport, TypesThatDiffer) {  // S-HANG-01 (c)
  const auto errors = run(4, [](Group& group) {
    std::vector<double> values(100);
    group.all_reduce({values.data(), 100, group.rank() == 0 ? DType::f32 : DType::f64});
    FAIL() << "no rank may succeed";
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("f32[100]"), HasSubstr("f64[100]"))));
}

TEST_P(CaseOnEachTransport, RootsThatDiffer) {  // S-HANG-06
  using Call = std::function<void(Group&, TensorView, TensorView, int)>;
  const std::pair<const char*, Call> calls[] = {
      {"reduce", [](Group& group, auto small, auto, int root) { group.reduce(small, root); }},
      {"broadcast", [](Group& group, auto small, auto, int root) { group.broadcast(small, root); }},
      {"scatter",
       [](Group& group, auto small, auto large, int root) { group.scatter(small, large, root); }},
      {"gather",
       [](Group& group, auto small, auto large, int root) { group.gather(large, small, root); }},
  };
  for (const auto& [name, call] : calls) {
    const auto errors = run(2, [&, &make = call](Group& group) {
      std::vector<float> small(3), large(6);
      make(group, view(small, DType::f32), view(large, DType::f32), group.rank());
      group.barrier();
      FAIL() << "the barrier is never passed";
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr(name), HasSubstr("root 0"), HasSubstr("root 1"))));
  }
}

TEST_P(CaseOnEachTransport, MeansOfHalvesNeitherOverflowNorVanish) {  // S-NUM-03
  struct {
    float values[4];
    float mean;
  } const cases[] = {{{30000, 30000, 30000, 30000}, 30000},
                     {{0x1p-24F, 0x1p-24F, 0x1p-24F, 0x1p-24F}, 0x1p-24F},
                     {{65504, -65504, 1, 1}, 0.5F}};
  for (const auto& [values, mean] : cases) {
    for (const std::size_t count : {1u, 67u, 20'000u}) {
      const auto errors = run(4, [&, &mine = values, right = mean](Group& group) {
        std::vector<std::uint16_t> halves(count, f32_to_f16(mine[group.rank()]));
        group.all_reduce(view(halves, DType::f16), Reduce::mean);
        EXPECT_THAT(halves, Each(f32_to_f16(right)));
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST_P(CaseOnEachTransport, EmptyTensorsInEveryOperation) {  // S-NUM-07
  const auto errors = run(4, [](Group& group) {
    std::vector<float> none, parts(6, static_cast<float>(group.rank()));
    const TensorView empty = view(none, DType::f32);
    group.all_gather(empty, empty);
    group.all_reduce(empty);
    group.broadcast({nullptr, 0, DType::i64});
    group.reduce_scatter(empty, empty);
    group.reduce(empty, 3);
    group.gather(empty, empty, 1);
    group.scatter(empty, empty, 2);
    group.all_to_all(empty, empty);
    const std::int64_t counts[] = {2, 2, 0, 2};  // only rank 2 has no rows
    std::vector<float> all(6);
    group.all_gather(view(all, DType::f32), {parts.data(), counts[group.rank()], DType::f32},
                     counts);
    EXPECT_THAT(all, ::testing::ElementsAre(0, 0, 1, 1, 3, 3));
    std::vector<float> one = {1};
    group.all_reduce(view(one, DType::f32));
    EXPECT_EQ(one[0], 4);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(CaseOnEachTransport, HalvesOfAllSizesAtAllStarts) {  // S-NUM-08
  std::vector<std::int64_t> counts = {4095, 1'000'003};
  for (std::int64_t count = 1; count <= 67; ++count) counts.push_back(count);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto halves = [&](std::int64_t count, int rank) {
      std::mt19937 random(1024 + static_cast<unsigned>(rank));
      std::uniform_real_distribution<float> values(-65504, 65504);
      std::vector<std::uint16_t> result(static_cast<std::size_t>(count));
      for (auto& half : result) {
        const float value = values(random);
        half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      }
      return result;
    };
    const auto sum = [&](std::uint16_t a, std::uint16_t b) {
      return dtype == DType::f16 ? f32_to_f16(f16_to_f32(a) + f16_to_f32(b))
                                 : f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b));
    };
    const auto errors = run(2, [&](Group& group) {
      const auto block = group.allocate(2 * 1'000'100);
      for (const std::int64_t count : counts) {
        std::vector<std::uint16_t> own(static_cast<std::size_t>(count) + 8);
        const auto mine = halves(count, group.rank()), other = halves(count, 1 - group.rank());
        for (const int start : {0, 1, 3}) {
          for (std::uint16_t* data :
               {own.data() + start, reinterpret_cast<std::uint16_t*>(block->data()) + start}) {
            std::copy(mine.begin(), mine.end(), data);
            group.all_reduce({data, count, dtype});
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < mine.size(); ++i)
              wrong += data[i] != sum(mine[i], other[i]);
            EXPECT_EQ(wrong, 0) << to_string(dtype) << '[' << count << "] from " << start;
          }
        }
      }
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

// All that a group can do, with scalars: a tensor of no dimensions has one element.
void do_everything(Group& group) {
  const float ranks = static_cast<float>(group.size());
  std::vector<float> one = {3.5F}, out = {0}, all(static_cast<std::size_t>(group.size()));
  const TensorView scalar = view(one, DType::f32), to = view(out, DType::f32);
  group.all_reduce(scalar);
  EXPECT_EQ(one[0], 3.5F * ranks);
  group.all_reduce(scalar, Reduce::mean);
  group.all_reduce(to, scalar, Reduce::max);
  EXPECT_EQ(out[0], 3.5F * ranks);
  group.broadcast(scalar);
  group.all_gather(view(all, DType::f32), scalar);
  EXPECT_THAT(all, Each(3.5F * ranks));
  group.reduce_scatter(to, view(all, DType::f32));
  EXPECT_EQ(out[0], 3.5F * ranks * ranks);
  group.reduce(scalar);
  group.broadcast(scalar);
  EXPECT_EQ(one[0], 3.5F * ranks * ranks);
  group.gather(view(all, DType::f32), scalar);
  group.scatter(to, view(all, DType::f32));
  EXPECT_EQ(out[0], one[0]);
  std::vector<float> came(all.size());
  all.assign(all.size(), 2);
  group.all_to_all(view(came, DType::f32), view(all, DType::f32));
  EXPECT_EQ(came, all);
  const std::vector<std::int64_t> counts(all.size(), 1);
  group.all_to_all(view(came, DType::f32), view(all, DType::f32), counts, counts);
  group.all_gather(view(all, DType::f32), scalar, counts);
  const TensorView several[] = {scalar, to};
  group.all_reduce(several);
  group.broadcast(several);
  group.barrier();
  group.async().all_reduce(scalar).wait();
  EXPECT_TRUE(group.poll());
}

TEST_P(CaseOnEachTransport, ScalarsInEveryOperation) {  // S-NUM-14
  EXPECT_THAT(run(2, do_everything), Each(IsEmpty()));
}

TEST(Case, AWorldOfOneIsTheIdentity) {  // S-NUM-14
  Group group{Settings()};
  do_everything(group);
  std::vector<float> one = {1};
  EXPECT_THROW(group.send(view(one, DType::f32), 0), Error);
  const auto block = group.allocate(100);
  EXPECT_EQ(block->bytes(), 100u);
}

TEST_P(CaseOnEachTransport, AScalarCannotBeScattered) {  // S-NUM-14
  const auto errors = run(2, [](Group& group) {
    std::vector<float> one = {1}, out = {1};
    group.reduce_scatter(view(out, DType::f32), view(one, DType::f32));
  });
  EXPECT_THAT(errors, Each(HasSubstr("dimension")));
}

TEST_P(CaseOnEachTransport, NanWinsWhoeverHoldsIt) {  // S-NUM-16
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<int> order = {0, 1, 2, 3};
  const float values[] = {1, nan, 3, 4};
  do {
    const auto errors = run(4, [&](Group& group) {
      const float mine = values[order[static_cast<std::size_t>(group.rank())]];
      for (const Reduce reduce : {Reduce::min, Reduce::max}) {
        for (const std::size_t count : {1u, 10'000u}) {
          std::vector<float> singles(count, mine);
          std::vector<double> doubles(count, mine);
          std::vector<std::uint16_t> halves(count, f32_to_f16(mine));
          group.all_reduce(view(singles, DType::f32), reduce);
          group.all_reduce(view(doubles, DType::f64), reduce);
          group.all_reduce(view(halves, DType::f16), reduce);
          EXPECT_TRUE(std::ranges::all_of(singles, [](float v) { return std::isnan(v); }));
          EXPECT_TRUE(std::ranges::all_of(doubles, [](double v) { return std::isnan(v); }));
          EXPECT_TRUE(std::ranges::all_of(
              halves, [](std::uint16_t v) { return std::isnan(f16_to_f32(v)); }));
        }
      }
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  } while (std::next_permutation(order.begin(), order.end()));
}

// A mean over something else than ranks: the sum, divided once, also for one rank.
TEST_P(CaseOnEachTransport, AMeanOfSamples) {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto errors = run(ranks, [](Group& group) {
      const auto sum = static_cast<float>(group.size() * (group.size() + 1)) / 2;
      for (const std::int64_t samples : {1, 7, 64}) {
        for (const std::size_t count : {1u, 5u, 40'000u}) {
          std::vector<float> values(count, static_cast<float>(group.rank() + 1));
          group.all_reduce(view(values, DType::f32), MeanOf{samples});
          std::vector<float> later(count, static_cast<float>(group.rank() + 1));
          group.async().all_reduce(view(later, DType::f32), MeanOf{samples}).wait();
          EXPECT_EQ(values, std::vector<float>(count, sum / static_cast<float>(samples)));
          EXPECT_EQ(values, later);
        }
      }
      float one = 1;
      EXPECT_THROW(group.all_reduce({&one, 1, DType::f32}, MeanOf{0}), Error);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

}  // namespace
}  // namespace lockstep
