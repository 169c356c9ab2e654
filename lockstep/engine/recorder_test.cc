#include "lockstep/engine/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/env/files.h"
#include "lockstep/env/temporary_folder.h"
#include "lockstep/plan/plan.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Error kCause(Code::timeout, "rank 1 waited");

Announcement all_reduce(std::uint64_t number) {
  Announcement operation;
  operation.sequence = number;
  operation.operation = static_cast<std::uint8_t>(Operation::all_reduce);
  operation.algorithm = 4;
  operation.count = 1000;
  return operation;
}

TEST(Recorder, TellsWhereEachOperationStands) {
  Recorder recorder(1, 3, {"", "job", "world"});
  const auto first = recorder.submitted(all_reduce(0), "ring", 4000);
  const auto second = recorder.submitted(all_reduce(1), "ring", 4000);
  recorder.submitted(all_reduce(2), "ring", 4000);
  recorder.started(first);
  recorder.finished(first, true);
  recorder.started(second);
  const FlightRecord record = recorder.record(kCause, {{second, {0, 2}}});
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.ranks, 3);
  EXPECT_EQ(record.error_code, "timeout");
  EXPECT_EQ(record.submitted, 3u);
  ASSERT_EQ(record.operations.size(), 3u);
  EXPECT_EQ(record.operations[0].state, "complete");
  EXPECT_EQ(record.operations[1].state, "under way");
  EXPECT_THAT(record.operations[1].waits_for, ElementsAre(0, 2));
  EXPECT_EQ(record.operations[2].state, "queued");
  const RecordedOperation& done = record.operations[0];
  EXPECT_EQ(done.what, "all_reduce number 0 (sum of f32[1000])");
  EXPECT_EQ(done.algorithm, "ring");
  EXPECT_EQ(done.bytes, 4000);
  EXPECT_GT(done.submitted_us, 1'600'000'000'000'000);
  EXPECT_LE(done.submitted_us, done.started_us);
  EXPECT_LE(done.started_us, done.finished_us);
  EXPECT_LE(done.finished_us, record.written_us);
  EXPECT_EQ(record.operations[2].started_us, 0);
}

TEST(Recorder, KeepsTheLastThousand) {
  Recorder recorder(0, 2, {"", "job", "world"});
  for (std::uint64_t number = 0; number < 2500; ++number) {
    const auto ticket = recorder.submitted(all_reduce(number), "ring", 4000);
    recorder.started(ticket);
    recorder.finished(ticket, number != 2499);
  }
  const FlightRecord record = recorder.record(kCause, {});
  ASSERT_EQ(record.operations.size(), Recorder::kOperationsMax);
  EXPECT_EQ(record.operations.front().number, 1500u);
  EXPECT_EQ(record.operations.back().number, 2499u);
  EXPECT_EQ(record.operations.back().state, "failed");
  EXPECT_EQ(record.submitted, 2500u);
}

TEST(Recorder, NeverForgetsTheOperationThatHangsHoweverManyAreQueuedBehindIt) {
  Recorder recorder(0, 2, {"", "job", "world"});
  std::vector<Recorder::Ticket> tickets;
  for (std::uint64_t number = 0; number < 1700; ++number) {
    tickets.push_back(recorder.submitted(all_reduce(number), "ring", 4000));
  }
  recorder.started(tickets[0]);
  recorder.started(tickets[1000]);  // has no place: must not be taken for number 0
  recorder.finished(tickets[1000], true);
  const FlightRecord record = recorder.record(kCause, {});
  EXPECT_EQ(record.operations.front().number, 0u);
  EXPECT_EQ(record.operations.front().state, "under way");
  EXPECT_EQ(record.operations.size(), 1000u);
  EXPECT_EQ(record.submitted, 1700u);
}

TEST(Recorder, WritesOnceAndOneRankOfAHostSaysWhere) {
  const TemporaryFolder folder;
  Recorder zero(0, 2, {folder.path() / "new", "77", "world"});
  Recorder one(1, 2, {folder.path() / "new", "77", "world"});
  zero.submitted(all_reduce(0), "ring", 4000);
  const auto said = zero.write(kCause, {});
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("lockstep blame " + (folder.path() / "new/lockstep-77").string()));
  EXPECT_TRUE(zero.written());
  EXPECT_FALSE(zero.write(Error(Code::io, "a later one"), {}));
  EXPECT_FALSE(one.write(kCause, {}));
  for (const int rank : {0, 1}) {
    const auto path = folder.path() / fmt::format("new/lockstep-77/rank-{}.record", rank);
    const FlightRecord record = parse_flight_record(read_file(path, kFlightRecordBytesMax));
    EXPECT_EQ(record.rank, rank);
    EXPECT_EQ(record.error, "rank 1 waited");
  }
  EXPECT_EQ(std::filesystem::status(folder.path() / "new/lockstep-77").permissions(),
            std::filesystem::perms::owner_all);
}

TEST(Recorder, AFolderThatCannotBeHadIsALineAndNoError) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  Recorder recorder(0, 2, {folder.path() / "file", "77", "world"});
  EXPECT_THAT(recorder.write(kCause, {}).value_or(""), HasSubstr("no flight record was written"));
  std::ofstream(folder.path() / "lockstep-77") << "in the way, too";
  Recorder other(0, 2, {folder.path(), "77", "world"});
  EXPECT_THAT(other.write(kCause, {}).value_or(""), HasSubstr("is no folder of this user"));
}

TEST(Recorder, WithoutAFolderNothingIsWritten) {
  Recorder recorder(0, 2, {"", "77", "world"});
  EXPECT_EQ(recorder.write(kCause, {}), std::nullopt);
}

TEST(Recorder, TakesReportsOfSeveralThreads) {
  Recorder recorder(0, 2, {"", "job", "world"});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t number = 0; number < 5000; ++number) {
        const auto ticket = recorder.submitted(all_reduce(number), "ring", 4000);
        recorder.started(ticket);
        recorder.finished(ticket, true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const FlightRecord record = recorder.record(kCause, {});
  EXPECT_EQ(record.submitted, 20'000u);
  for (const RecordedOperation& operation : record.operations) {
    EXPECT_EQ(operation.state, "complete");
  }
}

}  // namespace
}  // namespace lockstep
