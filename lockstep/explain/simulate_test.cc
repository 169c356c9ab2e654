#include "lockstep/explain/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/checker.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Numbers that show in a sum where they came from.
constexpr Prices kPrices{.latency_us = 1000,
                         .message_us = 10,
                         .byte_us = 0.5,
                         .reduced_byte_us = 0.25,
                         .copied_byte_us = 0.125,
                         .barrier_us = 3};
constexpr ElementSize kSize{4, 4};

Simulation simulate(const std::vector<Plan>& plans, const Shape& shape, bool trace = false,
                    const Prices& prices = kPrices) {
  Simulator simulator(shape, kSize, prices, trace);
  for (const Plan& plan : plans) simulator.add(plan);
  return simulator.run();
}

Simulation simulate(Plan (*make)(const Shape&), const Shape& shape, bool trace = false,
                    const Prices& prices = kPrices) {
  std::vector<Plan> plans;
  for (const Shape& of_rank : shapes_of(shape)) plans.push_back(make(of_rank));
  return simulate(plans, shape, trace, prices);
}

TEST(Simulator, AMessageTakesItsWorkItsBytesAndTheLatency) {
  Shape shape{Operation::send, 2, 0, 0, 100};
  shape.peer = 1;
  auto shapes = shapes_of(shape);
  shapes[1].peer = 0;
  const Simulation end = simulate({send_direct(shapes[0]), send_direct(shapes[1])}, shape);
  EXPECT_DOUBLE_EQ(end.end_us[0], 10 + 400 * 0.5);
  EXPECT_DOUBLE_EQ(end.end_us[1], 10 + 1000 + 400 * 0.5);
}

TEST(Simulator, MessagesLeaveOneAfterTheOtherAndArriveSo) {
  // Root sends three parts; the i-th leaves when those before it have.
  Shape scatter{Operation::scatter, 4, 0, 0, 100};
  const Simulation out = simulate(scatter_direct, scatter);
  EXPECT_DOUBLE_EQ(out.end_us[1], 10 + 1000 + 200);
  EXPECT_DOUBLE_EQ(out.end_us[2], 10 + 1000 + 400);
  EXPECT_DOUBLE_EQ(out.end_us[3], 10 + 1000 + 600);
  // Three ranks send at the same time, and root's line takes them in turn.
  Shape gather{Operation::gather, 4, 0, 0, 100};
  EXPECT_DOUBLE_EQ(simulate(gather_direct, gather).end(), 10 + 1000 + 600);
}

// Every rank does the same at the same time: rounds × (message, latency, slice), and the additions.
TEST(Simulator, ARingTakesWhatItsFormulaSays) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    const std::int64_t slice_bytes = 4 * 64;
    const Shape shape{Operation::all_reduce, ranks, 0, 0, 64L * ranks, 1, 1 << 20};
    const double hops = ranks - 1;
    const double round = 10 + 1000 + slice_bytes * 0.5;
    EXPECT_NEAR(simulate(all_reduce_ring, shape).end(),
                2 * hops * round + hops * 2 * slice_bytes * 0.25, 1e-6)
        << ranks;
  }
}

TEST(Simulator, DoublingTakesALatencyAndTheTensorPerRound) {
  for (const int levels : {1, 2, 3, 5}) {
    const Shape shape{Operation::all_reduce, 1 << levels, 0, 0, 64, 1, 1 << 20};
    EXPECT_NEAR(simulate(all_reduce_doubling, shape).end(),
                levels * (10 + 1000 + 256 * 0.5 + 2 * 256 * 0.25), 1e-6);
  }
}

TEST(Simulator, DirectIsTwoLatenciesDeepWhateverTheRanks) {
  Prices only_latency{.latency_us = 7,
                      .message_us = 0,
                      .byte_us = 0,
                      .reduced_byte_us = 0,
                      .copied_byte_us = 0,
                      .barrier_us = 0};
  for (const int ranks : {2, 5, 16, 100}) {
    const Shape shape{Operation::all_reduce, ranks, 0, 0, 1000, 1, 1 << 20};
    EXPECT_DOUBLE_EQ(simulate(all_reduce_direct, shape, false, only_latency).end(), 14) << ranks;
    EXPECT_DOUBLE_EQ(simulate(all_reduce_ring, shape, false, only_latency).end(),
                     7.0 * 2 * (ranks - 1));
    EXPECT_DOUBLE_EQ(simulate(all_reduce_doubling, shape, false, only_latency).end(),
                     7.0 * std::ceil(std::log2(ranks)));
  }
}

TEST(Simulator, BarriersWaitForTheLastOfTheHost) {
  Shape shape{Operation::all_reduce, 4, 0, 0, 64, 1, 1 << 20};
  // Each rank reads its 16 elements four times and writes three of them to others.
  const double work = 4 * 64 * 0.25 + 3 * 64 * 0.125;
  EXPECT_DOUBLE_EQ(simulate(all_reduce_arena, shape).end(), 3 + work + 3);
  shape.count = 16 + 1;  // one slice is longer: everybody waits for its rank
  EXPECT_DOUBLE_EQ(simulate(all_reduce_arena, shape).end(),
                   3 + 4 * 5 * 4 * 0.25 + 3 * 5 * 4 * 0.125 + 3);
}

TEST(Simulator, HostsPassTheirBarriersApart) {
  Shape shape{Operation::barrier, 4};
  const std::vector<int> hosts = {0, 0, 1, 2};
  shape.hosts = hosts;
  const Simulation end = simulate(barrier_hierarchical, shape);
  // Two rounds between the three leaders; a host of one rank has nobody to wait for.
  EXPECT_DOUBLE_EQ(end.end_us[2], end.end_us[3]);
  EXPECT_DOUBLE_EQ(end.end_us[0], end.end_us[1]);
  EXPECT_GE(end.end_us[0], 2 * 1010 + 2 * 3);
}

TEST(Simulator, TracesEveryMessageAndWait) {
  const Shape shape{Operation::all_reduce, 4, 0, 0, 64, 1, 1 << 20};
  const Simulation traced = simulate(all_reduce_doubling, shape, true);
  EXPECT_EQ(traced.flights.size(), 8u);
  for (const Flight& flight : traced.flights) {
    EXPECT_LT(flight.begin_us, flight.left_us);
    EXPECT_DOUBLE_EQ(flight.landed_us, flight.left_us + 1000);
  }
  const auto waits = std::ranges::count_if(
      traced.activities, [](const Activity& a) { return a.kind == StepKind::wait; });
  EXPECT_EQ(waits, 8);
  EXPECT_DOUBLE_EQ(traced.end(), simulate(all_reduce_doubling, shape).end());
}

TEST(Simulator, IsDeterministic) {
  const Shape shape{Operation::all_reduce, 13, 0, 0, 1000, 1, 100};
  const Simulation first = simulate(all_reduce_direct, shape);
  EXPECT_EQ(first.end_us, simulate(all_reduce_direct, shape).end_us);
}

TEST(Simulator, NamesWhoWaitsForEver) {
  const Shape shape{Operation::all_reduce, 2, 0, 0, 4, 1, 4};
  std::vector<Plan> plans;
  for (const Shape& of_rank : shapes_of(shape)) plans.push_back(all_reduce_arena(of_rank));
  plans[0].steps.pop_back();
  try {
    simulate(plans, shape);
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 waits for ever at step 2 (barrier)"));
  }
  plans.clear();
  for (const Shape& of_rank : shapes_of(shape)) plans.push_back(all_reduce_doubling(of_rank));
  std::erase_if(plans[0].steps, [](const Step& step) { return step.kind == StepKind::send; });
  EXPECT_THROW(simulate(plans, shape), Error);
}

// The simulation and the formulas that the choice uses must agree where the formulas are exact.
TEST(Simulator, AgreesWithTheFormulasOfTheTable) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.cost == nullptr) continue;
    for (const int ranks : {2, 4, 8, 32}) {
      for (const std::int64_t count : {1, 1000, 100'000}) {
        const Shape shape{algorithm.operation, ranks, 0, 0, count, 1, 1 << 20};
        const double simulated = simulate(algorithm.make, shape, false, Prices()).end();
        const double formula = predict_us(algorithm.cost(shape), 4, Prices());
        EXPECT_LT(simulated, 2 * formula) << to_string(algorithm.operation) << " " << algorithm.name
                                          << " " << ranks << " " << count;
        EXPECT_GT(simulated, formula / 2) << to_string(algorithm.operation) << " " << algorithm.name
                                          << " " << ranks << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
