#include "lockstep/engine/flight_record.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep flight record";
constexpr int kVersion = 1;
constexpr int kRanksMax = 65'536;

// Host names and messages of others need not be UTF-8.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string checksum_of(std::string_view text) {
  return fmt::format("{:016x}", checksum(text.data(), text.size()));
}

Json to_json(const RecordedOperation& operation) {
  return {{"number", operation.number},
          {"operation", operation.operation},
          {"what", operation.what},
          {"algorithm", operation.algorithm},
          {"dtype", operation.dtype},
          {"reduce", operation.reduce},
          {"root", operation.root},
          {"count", operation.count},
          {"bytes", operation.bytes},
          {"state", operation.state},
          {"waits_for", operation.waits_for},
          {"submitted_us", operation.submitted_us},
          {"started_us", operation.started_us},
          {"finished_us", operation.finished_us}};
}

RecordedOperation operation_from(const Json& json) {
  RecordedOperation operation;
  json.at("number").get_to(operation.number);
  json.at("operation").get_to(operation.operation);
  json.at("what").get_to(operation.what);
  json.at("algorithm").get_to(operation.algorithm);
  json.at("dtype").get_to(operation.dtype);
  json.at("reduce").get_to(operation.reduce);
  json.at("root").get_to(operation.root);
  json.at("count").get_to(operation.count);
  json.at("bytes").get_to(operation.bytes);
  json.at("state").get_to(operation.state);
  json.at("waits_for").get_to(operation.waits_for);
  json.at("submitted_us").get_to(operation.submitted_us);
  json.at("started_us").get_to(operation.started_us);
  json.at("finished_us").get_to(operation.finished_us);
  return operation;
}

// Takes the first line off `text`, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

FlightRecord header_from(const Json& json, std::string_view rest) {
  if (json.at("format").get<std::string>() != kFormat) fail(Code::corrupt, "no flight record");
  if (const int version = json.at("version").get<int>(); version > kVersion) {
    fail(Code::unsupported, "a flight record of version {}; this program reads up to {}", version,
         kVersion);
  }
  if (const auto bytes = json.at("bytes").get<std::uint64_t>(); bytes != rest.size()) {
    fail(Code::corrupt, "a damaged flight record: {} bytes after its first line instead of {}",
         rest.size(), bytes);
  }
  if (json.at("checksum").get<std::string>() != checksum_of(rest)) {
    fail(Code::corrupt, "a damaged flight record: its checksum is wrong");
  }
  FlightRecord record;
  json.at("job").get_to(record.job);
  json.at("group").get_to(record.group);
  json.at("rank").get_to(record.rank);
  json.at("ranks").get_to(record.ranks);
  json.at("host").get_to(record.host);
  json.at("process").get_to(record.process);
  json.at("written_us").get_to(record.written_us);
  json.at("error").at("code").get_to(record.error_code);
  json.at("error").at("text").get_to(record.error);
  json.at("submitted").get_to(record.submitted);
  if (record.ranks < 1 || record.ranks > kRanksMax || record.rank < 0 ||
      record.rank >= record.ranks) {
    fail(Code::corrupt, "a damaged flight record: of rank {} of {}", record.rank, record.ranks);
  }
  return record;
}

}  // namespace

std::string to_text(const FlightRecord& record) {
  std::string rest;
  for (const RecordedOperation& operation : record.operations) rest += line_of(to_json(operation));
  const Json header = {{"format", kFormat},
                       {"version", kVersion},
                       {"bytes", rest.size()},
                       {"checksum", checksum_of(rest)},
                       {"job", record.job},
                       {"group", record.group},
                       {"rank", record.rank},
                       {"ranks", record.ranks},
                       {"host", record.host},
                       {"process", record.process},
                       {"written_us", record.written_us},
                       {"error", {{"code", record.error_code}, {"text", record.error}}},
                       {"submitted", record.submitted}};
  return line_of(header) + rest;
}

FlightRecord parse_flight_record(std::string_view text) {
  // The first line says what it is before anything is parsed: foreign files are the common case.
  constexpr std::string_view kStart = R"({"format":"lockstep flight record",)";
  if (text.substr(0, kStart.size()) != kStart) fail(Code::corrupt, "no flight record");
  try {
    const Json header = Json::parse(take_line(text));
    FlightRecord record = header_from(header, text);
    while (!text.empty()) record.operations.push_back(operation_from(Json::parse(take_line(text))));
    return record;
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt, "a damaged flight record: {}", error.what());
  }
}

}  // namespace lockstep
