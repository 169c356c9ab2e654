// What is counted, compared, proved and drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/explain/candidates.h"
#include "lockstep/explain/drawing.h"
#include "lockstep/explain/outlook.h"
#include "lockstep/explain/proof.h"
#include "lockstep/explain/report.h"
#include "lockstep/plan/cutting.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Case case_of(Operation operation, int ranks, std::int64_t count, int hosts = 0) {
  Case of;
  of.operation = operation;
  of.ranks = ranks;
  of.count = count;
  if (hosts > 0) of.hosts = blocks_of_ranks(ranks, hosts);
  return of;
}

const Algorithm& named(Operation operation, const char* name) {
  return *find_algorithm(operation, name);
}

int count_of(const std::string& text, const std::string& what) {
  int count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Tally, CountsWhatTheHeadOfTheFileSays) {
  const Case of = case_of(Operation::all_reduce, 8, 8 << 10);
  const Outlook outlook = look_ahead(of, named(of.operation, "direct"), Prices());
  ASSERT_EQ(outlook.tallies.size(), 8u);
  for (const Tally& tally : outlook.tallies) {
    EXPECT_EQ(tally.messages_sent, 2 * 7);
    EXPECT_EQ(tally.messages_received, 2 * 7);
    EXPECT_EQ(tally.bytes_sent, 2 * (32 << 10) * 7 / 8);
    EXPECT_EQ(tally.bytes_reduced, 32 << 10);
    EXPECT_EQ(tally.waits, 2);
  }
}

TEST(Outlook, SimulatesAllOrEstimatesFromSome) {
  const Case of = case_of(Operation::all_reduce, 64, 1 << 16);
  const Algorithm& direct = named(of.operation, "direct");
  const Outlook all = look_ahead(of, direct, Prices());
  EXPECT_TRUE(all.simulated);
  EXPECT_EQ(all.ranks.size(), 64u);
  const Outlook some = look_ahead(of, direct, Prices(), 3000);
  EXPECT_FALSE(some.simulated);
  EXPECT_LT(some.ranks.size(), 64u);
  EXPECT_EQ(some.ranks.front(), 0);
  EXPECT_EQ(some.ranks.back(), 63);
  // The estimate adds up what the simulation lets happen side by side.
  EXPECT_NEAR(some.end_us(), all.end_us(), all.end_us());
}

// S-PERF: 16 million messages are costed without being made.
TEST(Outlook, Takes4096RanksThatAllTalkToEachOther) {
  const Case of = case_of(Operation::all_reduce, 4096, 1 << 20);
  const Outlook outlook = look_ahead(of, named(of.operation, "direct"), Prices());
  EXPECT_FALSE(outlook.simulated);
  EXPECT_EQ(outlook.tallies[0].messages_sent, 2 * 4095);
  EXPECT_EQ(outlook.ranks.back(), 4095);
}

TEST(RequirePlans, RefusesWhatWouldFillTheMemory) {
  const Case of = case_of(Operation::reduce_scatter, 4096, 16 << 20);
  EXPECT_THROW(require_plans(of, named(of.operation, "staged")), Error);
  EXPECT_NO_THROW(require_plans(of, named(of.operation, "direct")));
  const Case six = case_of(Operation::all_reduce, 6, 100);
  EXPECT_THROW(require_plans(six, named(six.operation, "halving")), Error);
  const Case apart = case_of(Operation::all_reduce, 6, 100, 2);
  EXPECT_THROW(require_plans(apart, named(apart.operation, "arena")), Error);
}

// However ranks are spread over hosts, what the engine makes fits into the arena's scratch.
TEST(RequirePlans, ScratchSufficesForAnyPlacement) {
  std::mt19937 random(1);
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.needs.shared_scratch || !algorithm.needs.messages) continue;
    for (const int ranks : {3, 8, 17, 64, 200, 4'096}) {
      for (int hosts = 1; hosts <= ranks; hosts += 1 + hosts / 2) {
        Case of = case_of(algorithm.operation, ranks, 1 << 17);
        // Some hosts have many ranks, most have few.
        std::geometric_distribution<int> some_host(2.0 / hosts);
        for (int rank = 0; rank < ranks; ++rank) of.hosts.push_back(some_host(random) % hosts);
        for (int rank = 0; rank < ranks; rank += 1 + ranks / 32) {
          const Plan plan = algorithm.make(shape_of(of, algorithm, rank));
          ASSERT_LE(plan.scratch_count * 4, static_cast<std::int64_t>(kScratchBytes))
              << algorithm.name << ", " << ranks << " ranks on at most " << hosts << " hosts";
        }
      }
    }
  }
}

TEST(Proof, IsOfTheCaseItselfIfThatIsSmallElseOfAStandIn) {
  const Case small = case_of(Operation::all_reduce, 6, 100);
  const Proof exact = prove(small, named(small.operation, "direct"));
  EXPECT_FALSE(exact.problem.has_value());
  EXPECT_THAT(exact.what, HasSubstr("6 ranks, 100 elements in 1 chunk:"));
  EXPECT_EQ(exact.left_out, "");
  const Case large = case_of(Operation::all_reduce, 1024, 64 << 20);
  const Proof standing_in = prove(large, named(large.operation, "direct"));
  EXPECT_FALSE(standing_in.problem.has_value());
  EXPECT_THAT(standing_in.what, HasSubstr("in 3 chunks"));
  EXPECT_THAT(standing_in.left_out, HasSubstr("1024 ranks, 67108864 elements in 64 chunks"));
}

TEST(Proof, OfAWrongAlgorithmFails) {
  Algorithm wrong = named(Operation::all_reduce, "ring");
  wrong.order = Order::canonical;  // which it does not keep
  const Proof proof = prove(case_of(Operation::all_reduce, 4, 100), wrong);
  ASSERT_TRUE(proof.problem.has_value());
  EXPECT_THAT(*proof.problem, HasSubstr("not what it should be"));
}

TEST(Candidates, SayWhatIsChosenAndWhyNot) {
  const Case of = case_of(Operation::all_reduce, 6, 1 << 20);
  const Candidates found = compare(of, 0, Prices(), Order::canonical);
  const auto choice = [&](const std::string& when) {
    for (const auto& one : found.choices) {
      if (one.when == when) return std::string(one.algorithm->name);
    }
    return std::string("no such situation");
  };
  EXPECT_EQ(choice("one host, tensor in the arena"), "arena");
  EXPECT_EQ(choice("one host, tensor of the user's own"), "staged");
  EXPECT_EQ(choice("2 hosts, tensor in the arena"), "hierarchical");
  EXPECT_EQ(choice("each rank on a host of its own"), "direct");
  for (const Candidate& candidate : found.all) {
    EXPECT_EQ(candidate.outlook.has_value(), candidate.algorithm->name != "halving");
  }
  EXPECT_THAT(to_text(found), HasSubstr("power of two"));
}

TEST(Candidates, GoByThePrices) {
  Prices dear;
  dear.byte_us = 0;
  dear.reduced_byte_us = 0;
  dear.message_us = 1000;
  const Case of = case_of(Operation::all_reduce, 8, 16 << 20);
  const auto chosen = [&](const Prices& prices) {
    return compare(of, 8, prices, Order::canonical).choices[0].algorithm->name;
  };
  EXPECT_EQ(chosen(Prices()), "direct");
  EXPECT_EQ(chosen(dear), "tree");  // a message per chunk and level, to one rank
}

TEST(Report, StepsAreReadAndElided) {
  const Case of = case_of(Operation::all_reduce, 4, 64, 2);
  const Algorithm& algorithm = named(of.operation, "hierarchical");
  const Plan plan = algorithm.make(shape_of(of, algorithm, 0));
  const std::string text = steps_text(plan, of, 0, 100);
  EXPECT_THAT(text, HasSubstr("reduce   partial[0..15] ← data[32..47] of ranks 0–1"));
  EXPECT_THAT(text, HasSubstr("send     partial[0..15] to rank 2"));
  EXPECT_THAT(text, Not(HasSubstr("more")));
  EXPECT_THAT(steps_text(plan, of, 0, 4), HasSubstr("… 7 more …"));
}

TEST(Drawing, HasEveryMessageOnceAndEveryRank) {
  const Case of = case_of(Operation::all_reduce, 8, 1024, 8);
  const std::string svg = draw(of, named(of.operation, "doubling"), Prices());
  EXPECT_EQ(count_of(svg, "<path d="), 3 * 8 + 1);  // one is the legend's
  EXPECT_EQ(count_of(svg, ">Σ all<"), 8);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(svg, HasSubstr(">rank " + std::to_string(rank) + "<"));
  }
  EXPECT_THAT(svg, HasSubstr(">all_reduce · doubling<"));
  EXPECT_THAT(svg, HasSubstr("8 ranks"));
}

TEST(Drawing, SaysWhatItLeavesOut) {
  const Case many = case_of(Operation::broadcast, 40, 100, 40);
  const std::string svg = draw(many, named(many.operation, "tree"), Prices());
  EXPECT_THAT(svg, HasSubstr("ranks 16–39 are not drawn"));
  const Case lengthy = case_of(Operation::broadcast, 4, 16 << 20, 4);
  EXPECT_THAT(draw(lengthy, named(lengthy.operation, "chain"), Prices()),
              HasSubstr("the first 3 of 128 chunks"));
  EXPECT_THROW(draw(case_of(Operation::barrier, 1000, 0), named(Operation::barrier, "arena"), {}),
               Error);
}

// Nothing outside the picture, nothing upside down, for every algorithm.
TEST(Drawing, StaysInsideThePictureForEveryAlgorithm) {
  const std::regex number("(?:width|height)=\"(-?[0-9.]+|nan|inf)\"");
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {2, 5, 8}) {
      Case of =
          case_of(algorithm.operation, algorithm.operation == Operation::send ? 2 : ranks, 100);
      of.hosts = usual_hosts(of.ranks, algorithm.needs);
      if (algorithm.accepts != nullptr && !algorithm.accepts(shape_of(of, algorithm, 0))) continue;
      const std::string svg = draw(of, algorithm, Prices());
      for (std::sregex_iterator it(svg.begin(), svg.end(), number), end; it != end; ++it) {
        const double value = std::stod((*it)[1]);
        EXPECT_TRUE(value >= 0 && value < 1300) << algorithm.name << ": " << it->str();
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
