#include "lockstep/engine/blame.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RecordedOperation sum(std::uint64_t number, int count, std::string_view state = kComplete,
                      std::vector<int> waits_for = {}) {
  RecordedOperation operation;
  operation.number = number;
  operation.operation = "all_reduce";
  operation.what = fmt::format("all_reduce number {} (sum of f32[{}])", number, count);
  operation.state = state;
  operation.waits_for = std::move(waits_for);
  return operation;
}

FlightRecord record(int rank, int ranks, std::vector<RecordedOperation> operations) {
  FlightRecord record;
  record.job = "a";
  record.group = "world";
  record.rank = rank;
  record.ranks = ranks;
  record.written_us = 100 + rank;
  record.error_code = "timeout";
  record.error = fmt::format("as rank {} has it", rank);
  record.operations = std::move(operations);
  return record;
}

TEST(Blame, TheRankThatCalledSomethingElseThanTheMajorityDivergedFirst) {  // S-HANG-01
  const Blame found =
      blame({record(0, 4, {sum(0, 8), sum(1, 409'600, kFailed, {2}), sum(2, 8, kQueued)}),
             record(1, 4, {sum(0, 8), sum(1, 409'600, kUnderWay)}),
             record(2, 4, {sum(0, 8), sum(1, 409'598, kFailed), sum(2, 9, kQueued)}),
             record(3, 4, {sum(0, 8), sum(1, 409'600, kUnderWay)})});
  EXPECT_EQ(found.verdict, Verdict::diverged);
  EXPECT_THAT(found.ranks, ElementsAre(2));
  EXPECT_EQ(found.number, 1u);
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("rank 2 diverged first, at number 1: rank 2 called all_reduce number "
                              "1 (sum of f32[409598]), ranks 0, 1, 3 all_reduce number 1 (sum of "
                              "f32[409600])"));
  EXPECT_THAT(text, HasSubstr("first error: timeout: as rank 0 has it"));
}

TEST(Blame, WithoutAMajorityBothSidesAreNamed) {
  const Blame found =
      blame({record(0, 2, {sum(0, 5, kFailed)}), record(1, 2, {sum(0, 6, kFailed)})});
  EXPECT_EQ(found.verdict, Verdict::diverged);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1));
  EXPECT_THAT(found.summary, HasSubstr("rank 0 called all_reduce number 0 (sum of f32[5])"));
  EXPECT_THAT(found.summary, HasSubstr("rank 1 called all_reduce number 0 (sum of f32[6])"));
}

TEST(Blame, RecordsThatBeginAtDifferentOperationsAreComparedWhereBothReach) {
  const Blame found = blame({record(0, 2, {sum(7, 1), sum(8, 2), sum(9, 3, kFailed)}),
                             record(1, 2, {sum(8, 2), sum(9, 4, kFailed)})});
  EXPECT_EQ(found.number, 9u);
}

TEST(Blame, ARankThatNeverCalledWhatOthersWaitInStoppedFirst) {
  const Blame found = blame({record(0, 3, {sum(4, 1), sum(5, 1, kFailed, {1})}),
                             record(1, 3, {sum(3, 1), sum(4, 1)}),
                             record(2, 3, {sum(4, 1), sum(5, 1, kUnderWay, {0, 1})})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_EQ(found.number, 5u);
  EXPECT_EQ(found.summary,
            "rank 1 stopped first, before all_reduce number 5 (sum of f32[1]), which ranks 0, 2 "
            "called");
  EXPECT_THAT(to_text(found), HasSubstr("  rank 1: all_reduce number 4 (sum of f32[1]): complete"));
}

TEST(Blame, HowMuchIsQueuedBehindAnOperationSaysNothing) {
  // Rank 0 has queued less than rank 1, but rank 2 is where it hangs.
  const Blame found =
      blame({record(0, 3, {sum(0, 1, kFailed, {2}), sum(1, 1, kQueued)}),
             record(1, 3, {sum(0, 1, kFailed, {2}), sum(1, 1, kQueued), sum(2, 1, kQueued)}),
             record(2, 3, {sum(0, 1, kQueued)})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(2));
  EXPECT_EQ(found.number, 0u);
}

TEST(Blame, ARankStuckInsideAnOperationThatOthersCompletedStoppedFirst) {
  const Blame found = blame(
      {record(0, 2, {sum(0, 1), sum(1, 1, kFailed, {1})}), record(1, 2, {sum(0, 1, kUnderWay)})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_EQ(found.number, 0u);
}

TEST(Blame, ARankWithoutARecordIsNamedWithWhatTheOthersWereIn) {
  const Blame found =
      blame({record(0, 3, {sum(0, 1), sum(1, 1, kFailed, {1})}), record(2, 3, {sum(0, 1)})});
  EXPECT_EQ(found.verdict, Verdict::missing);
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_THAT(found.summary, HasSubstr("rank 1 left no record"));
  EXPECT_THAT(found.summary, HasSubstr("rank 0 called all_reduce number 1"));
  EXPECT_THAT(to_text(found), HasSubstr("  rank 1: no record"));
}

TEST(Blame, AMissingRecordDoesNotHideTheRankThatOthersWaitFor) {
  const Blame found =
      blame({record(0, 3, {sum(0, 1), sum(1, 1, kFailed, {2})}), record(2, 3, {sum(0, 1)})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(2));
}

// It broke the group before rank 2 came to what rank 0 waits in.
TEST(Blame, ALostRankIsTheFirstCause) {
  auto first = record(0, 3, {sum(0, 1), sum(1, 1, kFailed, {2})});
  auto second = record(2, 3, {sum(0, 1)});
  first.error_code = second.error_code = "peer_lost";
  const Blame found = blame({first, second});
  EXPECT_EQ(found.verdict, Verdict::missing);
  EXPECT_THAT(found.ranks, ElementsAre(1));
}

TEST(Blame, OperationsBetweenTwoRanksAreNotCompared) {
  RecordedOperation send = sum(1, 5);
  send.operation = "send";
  const Blame found =
      blame({record(0, 2, {sum(0, 1), send}), record(1, 2, {sum(0, 1), sum(1, 1)})});
  EXPECT_NE(found.verdict, Verdict::diverged);
}

TEST(Blame, ARankThatOthersWaitForBetweenTwoStoppedFirst) {
  RecordedOperation receive = sum(0, 5, kFailed, {1});
  receive.operation = "send";
  receive.what = "send number 0 (from rank 1 of f32[5])";
  const Blame found = blame({record(0, 2, {sum(7, 1), receive}), record(1, 2, {sum(7, 1)})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_THAT(to_text(found), HasSubstr("  rank 0: send number 0 (from rank 1 of f32[5]): failed, "
                                        "waiting for rank 1"));
}

TEST(Blame, ARankThatDidNotComeBecauseItWaitedForAnotherIsNotTheFirst) {
  RecordedOperation receive = sum(0, 5, kUnderWay, {2});
  receive.operation = "send";
  const Blame found = blame({record(0, 3, {sum(0, 1), sum(1, 1, kFailed, {1, 2})}),
                             record(1, 3, {sum(0, 1), receive}), record(2, 3, {sum(0, 1)})});
  EXPECT_EQ(found.verdict, Verdict::stopped);
  EXPECT_THAT(found.ranks, ElementsAre(2));
}

TEST(Blame, RanksThatWaitForEachOtherAreShownAsTheyStand) {
  RecordedOperation from_one = sum(0, 5, kFailed, {1});
  RecordedOperation from_zero = sum(0, 5, kFailed, {0});
  from_one.operation = from_zero.operation = "send";
  const Blame found = blame({record(0, 2, {from_one}), record(1, 2, {from_zero})});
  EXPECT_EQ(found.verdict, Verdict::unclear);
  EXPECT_THAT(found.summary, HasSubstr("they wait for each other"));
  EXPECT_THAT(to_text(found), HasSubstr("waiting for rank 0"));
  EXPECT_THAT(to_text(found), HasSubstr("waiting for rank 1"));
}

TEST(Blame, WhenNothingWasUnderWayTheFirstErrorIsAllThereIs) {
  const Blame found = blame({record(0, 2, {sum(0, 1)}), record(1, 2, {sum(0, 1)})});
  EXPECT_EQ(found.verdict, Verdict::unclear);
  EXPECT_THAT(found.ranks, IsEmpty());
  EXPECT_THAT(to_text(found), HasSubstr("as rank 0 has it"));
  EXPECT_EQ(blame({record(0, 1, {})}).verdict, Verdict::unclear);
}

TEST(Blame, TheTextOfManyRanksStaysShort) {
  std::vector<FlightRecord> records;
  for (int rank = 0; rank < 500; ++rank) {
    const auto back = static_cast<std::uint64_t>(rank % 100);
    records.push_back(record(rank, 500, {sum(back, 1)}));
  }
  EXPECT_LT(std::ranges::count(to_text(blame(records)), '\n'), 25);
}

TEST(Blame, JsonSaysTheSame) {
  const auto json = nlohmann::json::parse(to_json(
      blame({record(0, 2, {sum(0, 1), sum(1, 1, kFailed, {1})}), record(1, 2, {sum(0, 1)})})));
  EXPECT_EQ(json["verdict"], "stopped");
  EXPECT_EQ(json["ranks"], std::vector<int>{1});
  EXPECT_EQ(json["number"], 1);
  EXPECT_EQ(json["standings"][0]["waits_for"], std::vector<int>{1});
}

TEST(SortRecords, PartsGroupsAndLeavesOutOtherJobsAndOlderRecords) {
  std::vector<FlightRecord> records = {record(0, 2, {}), record(1, 2, {}), record(0, 2, {}),
                                       record(0, 2, {}), record(1, 2, {})};
  records[2].group = "1";
  records[3].job = "b";
  records[4].written_us = 5000;
  std::vector<std::string> notes;
  const auto sorted = sort_records(records, {"f0", "f1", "f2", "f3", "f4"}, notes);
  ASSERT_THAT(sorted, SizeIs(2));
  EXPECT_THAT(sorted[0], SizeIs(1));
  ASSERT_THAT(sorted[1], SizeIs(2));
  EXPECT_EQ(sorted[1][1].written_us, 5000);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("'f3' is of another job"), HasSubstr("'f1' and 'f4'")));
  EXPECT_THAT(sort_records({}, {}, notes), IsEmpty());
}

}  // namespace
}  // namespace lockstep
