#include "lockstep/plan/checker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/order.h"
#include "lockstep/plan/packed_plan.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return fmt::format(
      "{} {}: {} ranks on hosts [{}], root {}, {} elements, aligned {}, chunks of {}",
      to_string(algorithm.operation), algorithm.name, shape.ranks, fmt::join(shape.hosts, " "),
      shape.root, shape.count, shape.align_count, shape.chunk_count);
}

void prove(const Algorithm& algorithm, Shape shape) {
  if (algorithm.operation == Operation::send) return;  // two ranks: Checker.ProvesSend
  if (algorithm.accepts != nullptr && !algorithm.accepts(shape)) return;
  const auto problem = check_plan(algorithm, shape);
  ASSERT_FALSE(problem.has_value()) << describe(algorithm, shape) << ": " << *problem;
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

// Where ranks may be: on one host if the plan sends no messages; else also apart, in blocks, in
// turns, and in blocks of uneven sizes.
std::vector<std::vector<int>> places(const Algorithm& algorithm, int ranks) {
  const bool shares = algorithm.needs.shared_data || algorithm.needs.shared_scratch;
  if (!algorithm.needs.messages || !shares) return {{}};
  std::vector<std::vector<int>> places(4);
  for (int rank = 0; rank < ranks; ++rank) {
    places[0].push_back(rank / 2);
    places[1].push_back(rank % 2);
    places[2].push_back(rank / 3);
    places[3].push_back(rank < 3 ? 0 : rank);
  }
  return places;
}

bool contributes(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::broadcast;
}

// Rank r sends (r + 2·to) % 4 elements to `to`.
void prove_uneven_all_to_all(const Algorithm& algorithm, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  std::vector<std::vector<std::int64_t>> sent(size), received(size);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int other = 0; other < ranks; ++other) {
      sent[static_cast<std::size_t>(rank)].push_back((rank + 2 * other) % 4);
      received[static_cast<std::size_t>(rank)].push_back((other + 2 * rank) % 4);
    }
  }
  auto shapes = shapes_of({algorithm.operation, ranks});
  for (std::size_t rank = 0; rank < size; ++rank) {
    shapes[rank].counts = sent[rank];
    shapes[rank].receive_counts = received[rank];
  }
  const auto problem = check_plan(algorithm, shapes);
  ASSERT_FALSE(problem.has_value()) << describe(algorithm, shapes[0]) << ": " << *problem;
}

TEST(Checker, ProvesEveryAlgorithmForSmallShapes) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      for (const auto& hosts : places(algorithm, ranks)) {
        for (const std::int64_t count : {0, 1, 3, 16, 17, 34}) {
          for (const std::int64_t chunk : {1, 5, 64}) {
            for (const std::int64_t align : {1, 4}) {
              const int roots = has_root(algorithm.operation) ? ranks : 1;
              for (int root = 0; root < roots; root += 3) {
                Shape shape{algorithm.operation, ranks, 0, root, count, align, chunk};
                shape.few_count = 17;
                shape.hosts = hosts;
                prove(algorithm, shape);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Checker, ProvesPartsOfAnySizes) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      std::vector<std::int64_t> counts;
      for (int rank = 0; rank < ranks; ++rank) counts.push_back((rank * 7 + 3) % 5);
      for (const std::int64_t chunk : {1, 3, 64}) {
        Shape shape{algorithm.operation, ranks, 0, ranks - 1, 0, 1, chunk};
        if (algorithm.operation != Operation::all_to_all) {
          const bool parts = data_count({algorithm.operation, 2, 0, 0, 1}) !=
                             input_count({algorithm.operation, 2, 0, 0, 1});
          if (!parts || contributes(algorithm.operation)) continue;
          shape.counts = counts;
          prove(algorithm, shape);
          continue;
        }
        if (algorithm.accepts != nullptr) continue;
        prove_uneven_all_to_all(algorithm, ranks);
      }
    }
  }
}

bool prove_all() {
  return std::getenv("LOCKSTEP_PROVE_ALL") != nullptr;
}

// LOCKSTEP_PROVE_ALL=1: every number of ranks up to 128, which takes some minutes.
std::vector<int> many_ranks() {
  std::vector<int> ranks = {18, 21, 24, 31, 32, 33, 48, 63, 65, 96, 128};
  if (!prove_all()) return ranks;
  ranks.resize(128 - 17);
  std::iota(ranks.begin(), ranks.end(), 18);
  return ranks;
}

TEST(Checker, ProvesEveryAlgorithmForManyRanks) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : many_ranks()) {
      for (const auto& hosts : places(algorithm, ranks)) {
        Shape shape{algorithm.operation, ranks, 0, ranks - 1, 101, 1, 50};
        shape.few_count = 101;
        if (data_count(shape) > 101 || input_count(shape) > 101) shape.count = 2;
        shape.hosts = hosts;
        prove(algorithm, shape);
      }
    }
    for (const int ranks : {61, 127}) {
      Shape shape{algorithm.operation, ranks, 0, ranks - 1, 1, 1, 50};
      prove(algorithm, shape);
    }
  }
}

// `count` 0: enough for a slice, or a part, of every rank.
Shape shape_for_4096(const Algorithm& algorithm, std::int64_t count) {
  static const std::vector<int> hosts = [] {
    std::vector<int> result;
    for (int rank = 0; rank < 4096; ++rank) result.push_back(rank / 64);
    return result;
  }();
  Shape shape{algorithm.operation, 4096, 1, 5, count, 1, count};
  if (count == 0) shape.count = shape.chunk_count = contributes(algorithm.operation) ? 4099 : 1;
  const bool shares = algorithm.needs.shared_data || algorithm.needs.shared_scratch;
  if (algorithm.needs.messages && shares) shape.hosts = hosts;
  return shape;
}

// What a proof has to do for one rank, roughly.
std::int64_t weight_of(const Plan& plan) {
  auto weight = static_cast<std::int64_t>(plan.steps.size());
  for (const Location& at : plan.locations) weight += 1 + at.range.count;
  return weight;
}

// LOCKSTEP_PROVE_ALL=1: all algorithms, which takes five minutes and 5.2 GB. Else those are left
// out whose ranks have steps for each of 4,096 others, and a slice for everybody where that is much
// to do.
TEST(Checker, Proves4096Ranks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kWeightMax = 1'000;  // all is several times slower
#else
  constexpr std::int64_t kWeightMax = 17'000;
#endif
  constexpr std::int64_t kFewCount = 3;
  int proved = 0, left_out = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.operation == Operation::send) continue;  // two ranks: Checker.ProvesSend
    Shape shape = shape_for_4096(algorithm, 0);
    shape.few_count = kFewCount;
    const bool suits = algorithm.suits == nullptr || algorithm.suits(shape);
    if (!suits) shape = shape_for_4096(algorithm, kFewCount);
    ASSERT_TRUE(algorithm.accepts == nullptr || algorithm.accepts(shape));
    const auto weight = [&] { return weight_of(algorithm.make(shape)); };
    if (!prove_all() && contributes(algorithm.operation) && weight() > kWeightMax) {
      shape = shape_for_4096(algorithm, kFewCount);
    }
    if (!prove_all() && weight() > kWeightMax) {
      ++left_out;
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    prove(algorithm, shape);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    fmt::print("  {} {}: {} elements, {} steps in rank 1, {:.1f} s\n",
               to_string(algorithm.operation), algorithm.name, shape.count,
               algorithm.make(shape).steps.size(), taken.count());
    std::fflush(stdout);
    ++proved;
  }
  fmt::print("  {} algorithms proved, {} left out\n", proved, left_out);
  EXPECT_EQ(proved + left_out, static_cast<int>(algorithms().size()) - 1);
  EXPECT_GE(proved, kWeightMax < 17'000 ? 12 : 24);
  EXPECT_TRUE(left_out == 0 || !prove_all());
}

TEST(PackedPlan, HoldsEveryStep) {
  for (const Algorithm& algorithm : algorithms()) {
    Shape shape{algorithm.operation, 8, 3, 5, 101, 1, 20};
    const std::vector<int> hosts = places(algorithm, 8).back();
    shape.hosts = hosts;
    const Plan plan = algorithm.make(shape);
    const PackedPlan packed(plan);
    ASSERT_EQ(packed.step_count(), plan.steps.size());
    std::size_t position = 0;
    UnpackedStep unpacked;
    for (const Step& step : plan.steps) {
      position = packed.read(position, unpacked);
      EXPECT_EQ(unpacked.kind, step.kind);
      EXPECT_EQ(unpacked.peer, step.peer);
      EXPECT_EQ(unpacked.messages, step.messages);
      const auto same = [](const Location& a, const Location& b) {
        return a.rank == b.rank && a.space == b.space && a.level == b.level && a.range == b.range;
      };
      EXPECT_TRUE(std::ranges::equal(unpacked.destinations(), plan.destinations(step), same));
      EXPECT_TRUE(std::ranges::equal(unpacked.sources(), plan.sources(step), same));
    }
  }
}

TEST(Checker, ProvesSend) {
  for (const std::int64_t count : {0, 1, 9}) {
    Shape shape{Operation::send, 2, 0, 1, count};
    std::vector<Shape> shapes = shapes_of(shape);
    shapes[0].peer = 1;
    EXPECT_EQ(
        check_plans({send_direct(shapes[0]), send_direct(shapes[1])}, shapes, Order::canonical),
        std::nullopt);
  }
}

TEST(Blocks, AreTheFewestThatMakeUpTheMembers) {
  const auto spans = [](const std::vector<int>& members, int ranks) {
    std::string text;
    for (const Block& block : blocks_of(members, ranks)) {
      text += fmt::format("{}-{}:{} ", block.begin, block.end, block.level);
    }
    return text;
  };
  EXPECT_EQ(spans({0, 1, 2, 3}, 8), "0-4:2 ");
  EXPECT_EQ(spans({2, 3, 4, 5}, 8), "2-4:1 4-6:1 ");
  EXPECT_EQ(spans({0, 1, 2}, 6), "0-2:1 2-3:0 ");
  EXPECT_EQ(spans({3, 4, 5}, 6), "3-4:0 4-6:1 ");
  EXPECT_EQ(spans({0, 2, 4}, 6), "0-1:0 2-3:0 4-5:0 ");
  EXPECT_EQ(spans({0, 1, 2, 3, 4}, 5), "0-5:3 ");
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
    return check_plans(plans, shapes_of(kShape), Order::canonical).value_or("nothing found");
  }
  static std::size_t find(const Plan& plan, StepKind kind, int nth = 0) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].kind == kind && nth-- == 0) return i;
    }
    ADD_FAILURE() << "no such step";
    return 0;
  }
  // Location `index` of a step: destinations first, then sources.
  static Location& at(Plan& plan, std::size_t step, std::size_t index) {
    return plan.locations[plan.steps[step].first + index];
  }
  static void drop(Plan& plan, StepKind kind, int nth = 0) {
    plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(find(plan, kind, nth)));
  }
};

TEST_F(Planted, WrongOrderOfAddition) {
  auto all = plans(all_reduce_arena);
  std::swap(at(all[1], 1, 3), at(all[1], 1, 4));
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
}

TEST_F(Planted, ARankLeftOutOrCountedTwice) {
  auto all = plans(all_reduce_arena);
  at(all[0], 1, 5) = at(all[0], 1, 4);
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
  all = plans(all_reduce_arena);
  --all[0].steps[1].sources;
  EXPECT_THAT(problem(all), HasSubstr("not what it should be"));
}

TEST_F(Planted, MissingBarriers) {
  for (const int nth : {0, 1}) {
    auto all = plans(all_reduce_arena);
    for (Plan& plan : all) drop(plan, StepKind::barrier, nth);
    EXPECT_NE(problem(all), "nothing found");
  }
  // Each barrier of the staged plan is needed, the one at the end included.
  const int barriers = 1 + 3;
  for (int nth = 0; nth < barriers; ++nth) {
    auto all = plans(all_reduce_staged);
    for (Plan& plan : all) drop(plan, StepKind::barrier, nth);
    EXPECT_NE(problem(all), "nothing found") << nth;
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
  --at(all[1], find(all[1], StepKind::send), 0).range.count;
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
  const auto send = find(all[0], StepKind::send);
  const Location sent = at(all[0], send, 0);
  Location other = sent;
  other.range.begin = 0;
  Step overwrite{StepKind::copy, 1, 1, -1, all[0].locations.size(), 0};
  all[0].locations.insert(all[0].locations.end(), {sent, other});
  all[0].steps.insert(all[0].steps.begin() + static_cast<std::ptrdiff_t>(send) + 1, overwrite);
  EXPECT_THAT(problem(all), HasSubstr("still being sent"));
}

TEST_F(Planted, OutsideTheBuffers) {
  auto all = plans(all_reduce_staged);
  all[0].scratch_count = 3;
  EXPECT_THAT(problem(all), HasSubstr("outside its buffer"));
  all = plans(all_reduce_direct);
  at(all[0], find(all[0], StepKind::reduce), 2).rank = 1;
  EXPECT_THAT(problem(all), HasSubstr("not shared"));
}

TEST_F(Planted, BarrierThatDoesNotWait) {
  Shape shape = kShape;
  shape.operation = Operation::barrier;
  const std::vector<Plan> empty(3);
  EXPECT_THAT(check_plans(empty, shapes_of(shape), Order::canonical).value_or("nothing found"),
              HasSubstr("ended before"));
}

// Of so many ranks that there are no clocks.
TEST_F(Planted, AmongManyRanks) {
  const auto shapes =
      shapes_of({Operation::all_reduce, kFullProofRanksMax + 44, 0, 0, 301, 1, 301});
  std::vector<Plan> good;
  for (const Shape& shape : shapes) good.push_back(all_reduce_direct(shape));
  const auto problem_with = [&](const auto& plant) {
    std::vector<Plan> all = good;
    plant(all[7]);
    return check_plans(all, shapes, Order::canonical).value_or("nothing found");
  };
  EXPECT_EQ(problem_with([](Plan&) {}), "nothing found");
  EXPECT_NE(problem_with([](Plan& plan) { drop(plan, StepKind::send); }), "nothing found");
  EXPECT_THAT(problem_with([](Plan& plan) { plan.steps.pop_back(); }),
              HasSubstr("never waited for"));
  EXPECT_THAT(problem_with(
                  [](Plan& plan) { plan.steps.push_back(plan.steps[find(plan, StepKind::send)]); }),
              HasSubstr("more than it asks for"));
  EXPECT_THAT(problem_with([](Plan& plan) {
                const auto reduce = find(plan, StepKind::reduce);
                std::swap(at(plan, reduce, 3), at(plan, reduce, 4));
              }),
              HasSubstr("not what it should be"));
}

// The same with an algorithm whose ranks pass on unfinished sums.
class PlantedInTree : public ::testing::Test {
 protected:
  std::string problem() {
    return check_plans(plans_, shapes_, Order::canonical).value_or("nothing found");
  }

  const std::vector<Shape> shapes_ = shapes_of({Operation::reduce, 8, 0, 0, 40, 1, 8});
  std::vector<Plan> plans_ = [this] {
    std::vector<Plan> plans;
    for (const Shape& shape : shapes_) plans.push_back(reduce_tree(shape));
    return plans;
  }();
};

TEST_F(PlantedInTree, NothingYet) {
  EXPECT_EQ(problem(), "nothing found");
}

TEST_F(PlantedInTree, SumsTakenForValues) {
  for (Location& location : plans_[0].locations) {
    if (location.space == Space::partial) location.space = Space::scratch;
  }
  EXPECT_THAT(problem(), HasSubstr("unfinished"));
}

TEST_F(PlantedInTree, BlocksMergedInAnotherOrder) {
  for (Location& location : plans_[0].locations) location.level = 0;
  EXPECT_THAT(problem(), HasSubstr("not what it should be"));
}

TEST_F(PlantedInTree, FlushesThatAreMissing) {
  std::erase_if(plans_[2].steps, [](const Step& step) { return step.kind == StepKind::flush; });
  EXPECT_THAT(problem(), HasSubstr("still being sent"));
}

const Algorithm* best(Operation operation, std::int64_t count, const Reach& reach, int ranks = 4,
                      const Choice& choice = {}) {
  return choose({operation, ranks, 0, 0, count, 16, 1 << 20}, 4, reach, Prices(), choice);
}

TEST(Choose, TakesWhatTheTransportsAllow) {
  const Reach shared{.one_host = true, .shared_data = true};
  const Reach apart{.one_host = false, .shared_scratch = false};
  EXPECT_EQ(best(Operation::all_reduce, 1000, shared)->name, "arena");
  EXPECT_EQ(best(Operation::all_reduce, 1000, {})->name, "staged");
  EXPECT_EQ(best(Operation::all_reduce, 1 << 20, apart)->name, "direct");
  EXPECT_EQ(best(Operation::broadcast, 10, apart)->name, "tree");
  EXPECT_EQ(best(Operation::barrier, 0, apart)->name, "dissemination");
  const Reach mixed{.one_host = false, .shared_data = true};
  EXPECT_EQ(best(Operation::all_reduce, 1 << 20, mixed)->name, "hierarchical");
}

TEST(Choose, FewRoundsForFewBytesFewBytesForMany) {
  const Reach apart{.one_host = false, .shared_scratch = false};
  EXPECT_EQ(best(Operation::all_reduce, 1, apart, 64)->name, "doubling");
  EXPECT_EQ(best(Operation::all_reduce, 1 << 16, apart, 64)->name, "halving");
  EXPECT_EQ(best(Operation::all_reduce, 1 << 24, apart, 64)->name, "direct");
  EXPECT_EQ(best(Operation::all_reduce, 1 << 24, apart, 60)->name, "direct");
}

TEST(Choose, TakesWhatIsForcedOrNothing) {
  EXPECT_EQ(best(Operation::all_reduce, 10, {}, 4, {.forced = "ring"})->name, "ring");
  EXPECT_EQ(best(Operation::all_reduce, 10, {}, 4, {.forced = "arena"}), nullptr);
  EXPECT_EQ(best(Operation::all_reduce, 10, {}, 6, {.forced = "halving"}), nullptr);
  EXPECT_EQ(best(Operation::all_reduce, 10, {}, 4, {.forced = "nonsense"}), nullptr);
}

}  // namespace
}  // namespace lockstep
