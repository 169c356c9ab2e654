// Flight record: the last operations of one rank of one group, as they stand in a file.
// docs/flight-record.md is the format. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Texts, not enums: a record of a newer release may name what this one does not know.
struct RecordedOperation {
  std::uint64_t number = 0;
  std::string operation;
  std::string what;  // all that the ranks must agree on
  std::string algorithm;
  std::string dtype;
  std::string reduce;
  int root = 0;
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::string state;
  std::vector<int> waits_for;
  std::int64_t submitted_us = 0;  // since 1970; 0: not
  std::int64_t started_us = 0;
  std::int64_t finished_us = 0;

  bool operator==(const RecordedOperation&) const = default;
};

struct FlightRecord {
  std::string job;
  std::string group;
  int rank = 0;
  int ranks = 1;
  std::string host;
  std::int64_t process = 0;
  std::int64_t written_us = 0;
  std::string error_code;
  std::string error;
  std::uint64_t submitted = 0;
  std::vector<RecordedOperation> operations;  // oldest first

  bool operator==(const FlightRecord&) const = default;
};

// The states of an operation.
inline constexpr std::string_view kQueued = "queued";
inline constexpr std::string_view kUnderWay = "under way";
inline constexpr std::string_view kComplete = "complete";
inline constexpr std::string_view kFailed = "failed";

// No file is larger: a reader need not take more into memory.
inline constexpr std::size_t kFlightRecordBytesMax = 256 << 20;

std::string to_text(const FlightRecord& record);
// Throws Error(corrupt) when `text` is no flight record or is damaged, Error(unsupported) when it
// is of a newer version.
FlightRecord parse_flight_record(std::string_view text);

}  // namespace lockstep
