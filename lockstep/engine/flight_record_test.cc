#include "lockstep/engine/flight_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

FlightRecord example() {
  FlightRecord record;
  record.job = "00ff";
  record.group = "world";
  record.rank = 2;
  record.ranks = 3;
  record.host = "a \"host\"\nwith a line end";
  record.process = 4711;
  record.written_us = 1'700'000'000'000'000;
  record.error_code = "timeout";
  record.error = "rank 2 waited 5.0 s";
  record.submitted = 7;
  record.operations.push_back({5,
                               "all_reduce",
                               "all_reduce number 5 (sum of f32[9])",
                               "ring",
                               "f32",
                               "sum",
                               0,
                               9,
                               36,
                               "complete",
                               {},
                               10,
                               20,
                               30});
  record.operations.push_back({6,
                               "barrier",
                               "barrier number 6",
                               "arena",
                               "f32",
                               "sum",
                               0,
                               0,
                               0,
                               "failed",
                               {0, 1},
                               40,
                               50,
                               60});
  return record;
}

Error refusal(const std::string& text) {
  try {
    parse_flight_record(text);
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::cancelled, "accepted");
}

TEST(FlightRecord, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_flight_record(to_text(example())), example());
  FlightRecord empty = example();
  empty.operations.clear();
  EXPECT_EQ(parse_flight_record(to_text(empty)), empty);
}

TEST(FlightRecord, IsALineForEachOperationAfterTheHeader) {
  const std::string text = to_text(example());
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_EQ(text.back(), '\n');
}

TEST(FlightRecord, TextThatIsNoUtf8DoesNotKeepItFromBeingWritten) {
  FlightRecord record = example();
  record.error = "\xff\xfe lost";
  EXPECT_THAT(parse_flight_record(to_text(record)).error, HasSubstr(" lost"));
}

TEST(FlightRecord, ForeignFilesAreNamedSo) {
  for (const char* foreign : {"", "\n", "{}", "hello", "[[[[[[", "{\"format\":\"something\"}"}) {
    EXPECT_EQ(refusal(foreign).code(), Code::corrupt);
    EXPECT_THAT(refusal(foreign).what(), HasSubstr("no flight record"));
  }
}

TEST(FlightRecord, EveryTruncationIsNoticed) {
  const std::string text = to_text(example());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_EQ(refusal(text.substr(0, bytes)).code(), Code::corrupt) << bytes;
  }
  EXPECT_EQ(refusal(text + "\n").code(), Code::corrupt);
}

TEST(FlightRecord, AChangedByteBehindTheHeaderIsNoticedAndNoneElsewhereBreaksTheReader) {
  const std::string text = to_text(example());
  const std::size_t header = text.find('\n');
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = text;
    const std::size_t at = random() % text.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    const Code code = refusal(damaged).code();
    if (at > header) {
      EXPECT_EQ(code, Code::corrupt) << at;
    }
  }
}

TEST(FlightRecord, ANewerVersionIsRefusedAsSuch) {
  std::string text = to_text(example());
  text.replace(text.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_EQ(refusal(text).code(), Code::unsupported);
}

TEST(FlightRecord, ARankOutsideItsGroupIsRefused) {
  for (const auto& [rank, ranks] : {std::pair(3, 3), {-1, 3}, {0, 0}, {0, 1 << 30}}) {
    FlightRecord record = example();
    record.rank = rank;
    record.ranks = ranks;
    EXPECT_EQ(refusal(to_text(record)).code(), Code::corrupt);
  }
}

}  // namespace
}  // namespace lockstep
