#include "lockstep/plan/checker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/plan/algorithms.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return fmt::format("{} {}: {} ranks, root {}, {} elements, aligned {}, chunks of {}",
                     to_string(algorithm.operation), algorithm.name, shape.ranks, shape.root,
                     shape.count, shape.align_count, shape.chunk_count);
}

void prove(const Algorithm& algorithm, const Shape& shape) {
  const auto problem = check_plan(algorithm, shape);
  EXPECT_FALSE(problem.has_value()) << describe(algorithm, shape) << ": " << *problem;
}

TEST(Checker, ProvesEveryAlgorithmForSmallShapes) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      for (const std::int64_t count : {0, 1, 2, 3, 7, 16, 17, 31, 34}) {
        for (const std::int64_t chunk : {1, 5, 64}) {
          for (const std::int64_t align : {1, 4}) {
            const int roots = algorithm.operation == Operation::broadcast ? ranks : 1;
            for (int root = 0; root < roots; root += 3) {
              prove(algorithm, {algorithm.operation, ranks, 0, root, count, align, chunk});
            }
          }
        }
      }
    }
  }
}

TEST(Checker, ProvesEveryAlgorithmForManyRanks) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {32, 61, 128}) {
      for (const std::int64_t count : {1, 101, 2 * ranks}) {
        prove(algorithm, {algorithm.operation, ranks, 0, ranks - 1, count, 1, 50});
      }
    }
  }
}

// A checker that finds nothing proves nothing: each kind of mistake, planted into a good plan.
class Planted : public ::testing::Test {
 protected:
  static constexpr Shape kShape{Operation::all_reduce, 3, 0, 0, 12, 1, 4};

  static std::vector<Plan> plans(Plan (*make)(const Shape&)) {
    std::vector<Plan> result;
    for (int rank = 0; rank < kShape.ranks; ++rank) {
      Shape shape = kShape;
      shape.rank = rank;
      result.push_back(make(shape));
    }
    return result;
  }
  static std::string problem(const std::vector<Plan>& plans) {
    return check_plans(plans, kShape).value_or("nothing found");
  }
  static std::size_t find(const Plan& plan, StepKind kind, int nth = 0) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].kind == kind && nth-- == 0) return i;
    }
    ADD_FAILURE() << "no such step";
    return 0;
  }
  static void drop(Plan& plan, StepKind kind, int nth = 0) {
    plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(find(plan, kind, nth)));
  }
};

TEST_F(Planted, WrongOrderOfAddition) {
  auto all = plans(all_reduce_arena);
  std::swap(all[1].steps[1].sources[0], all[1].steps[1].sources[1]);
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
}

TEST_F(Planted, ARankLeftOutOrCountedTwice) {
  auto all = plans(all_reduce_arena);
  all[0].steps[1].sources[2] = all[0].steps[1].sources[1];
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
  all = plans(all_reduce_arena);
  all[0].steps[1].sources.pop_back();
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
}

TEST_F(Planted, MissingBarriers) {
  for (const int nth : {0, 1}) {
    auto all = plans(all_reduce_arena);
    for (Plan& plan : all) drop(plan, StepKind::barrier, nth);
    EXPECT_NE(problem(all), "nothing found");
  }
  // Each barrier of the staged plan is needed, the one at the end included.
  const int barriers = 2 * 3;
  for (int nth = 0; nth < barriers; ++nth) {
    auto all = plans(all_reduce_staged);
    for (Plan& plan : all) drop(plan, StepKind::barrier, nth);
    EXPECT_THAT(problem(all), HasSubstr("while")) << nth;
  }
  auto all = plans(all_reduce_arena);
  drop(all[2], StepKind::barrier);
  EXPECT_NE(problem(all), "nothing found");
}

TEST_F(Planted, MessagesThatDoNotMeet) {
  auto all = plans(all_reduce_direct);
  drop(all[0], StepKind::send);
  EXPECT_NE(problem(all), "nothing found");
  all = plans(all_reduce_direct);
  std::erase_if(all[0].steps, [](const Step& step) { return step.kind == StepKind::send; });
  EXPECT_THAT(problem(all), HasSubstr("waits for ever"));
  all = plans(all_reduce_direct);
  all[1].steps.push_back(all[1].steps[find(all[1], StepKind::send)]);
  EXPECT_NE(problem(all), "nothing found");
  all = plans(all_reduce_direct);
  --all[1].steps[find(all[1], StepKind::send)].sources[0].range.count;
  EXPECT_THAT(problem(all), HasSubstr("which sends"));
}

TEST_F(Planted, WaitsThatAreMissingOrTooEarly) {
  auto all = plans(all_reduce_direct);
  drop(all[1], StepKind::wait);
  EXPECT_THAT(problem(all), HasSubstr("still being received"));
  all = plans(all_reduce_direct);
  all[1].steps.pop_back();
  EXPECT_THAT(problem(all), HasSubstr("never waited for"));
}

TEST_F(Planted, OverwritingWhatIsBeingSent) {
  auto all = plans(all_reduce_direct);
  const Step& send = all[0].steps[find(all[0], StepKind::send)];
  Step overwrite{StepKind::copy, -1, 0, {send.sources[0]}, {send.sources[0]}};
  overwrite.sources[0].range.begin = 0;
  const auto at = all[0].steps.begin() + static_cast<std::ptrdiff_t>(find(all[0], StepKind::send));
  all[0].steps.insert(at + 1, overwrite);
  EXPECT_THAT(problem(all), HasSubstr("still being sent"));
}

TEST_F(Planted, OutsideTheBuffers) {
  auto all = plans(all_reduce_staged);
  all[0].scratch_count = 3;
  EXPECT_THAT(problem(all), HasSubstr("outside its buffer"));
  all = plans(all_reduce_direct);
  all[0].steps[find(all[0], StepKind::reduce)].sources[1].rank = 1;
  EXPECT_THAT(problem(all), HasSubstr("not shared"));
}

TEST_F(Planted, BarrierThatDoesNotWait) {
  Shape shape = kShape;
  shape.operation = Operation::barrier;
  const std::vector<Plan> empty(3);
  EXPECT_THAT(check_plans(empty, shape).value_or("nothing found"), HasSubstr("ended before"));
}

TEST(Choose, TakesTheFirstThatTheLinksAllow) {
  EXPECT_EQ(choose(Operation::all_reduce, {true, true}).name, "arena");
  EXPECT_EQ(choose(Operation::all_reduce, {false, true}).name, "staged");
  EXPECT_EQ(choose(Operation::all_reduce, {}).name, "direct");
  EXPECT_EQ(choose(Operation::broadcast, {}).name, "tree");
  EXPECT_EQ(choose(Operation::barrier, {}).name, "dissemination");
}

}  // namespace
}  // namespace lockstep
