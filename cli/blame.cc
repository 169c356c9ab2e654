#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/blame.h"
#include "lockstep/env/files.h"

namespace lockstep::cli {
namespace {

constexpr int kUsage = 2;

void print_help() {
  fmt::print(
      "Says which rank of a failed job diverged or stopped first, and in which operation.\n\n"
      "Usage: lockstep blame [--json] FILE|FOLDER...\n\n"
      "  FILE    a rank's flight record, or a FOLDER with *.record files. The ranks of a job "
      "write\n"
      "          them when it fails, and say where (LOCKSTEP_RECORD, docs/flight-record.md).\n"
      "          From several hosts: gather them first\n"
      "  --json  one JSON object per group, on a line of its own\n\n"
      "Exit status: 0; 2 when a file could not be used (the others are) or no record was given.\n");
}

std::vector<std::string> files_of(const std::string& argument) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(argument, ignored)) return {argument};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(argument)) {
    if (entry.path().extension() == ".record") files.push_back(entry.path().string());
  }
  if (files.empty()) fail(Code::io, "'{}' has no *.record files", argument);
  std::ranges::sort(files);
  return files;
}

struct Input {
  std::vector<FlightRecord> records;
  std::vector<std::string> names;
  bool failed = false;

  void complain(const std::string& what) {
    fmt::print(stderr, "lockstep blame: {}\n", what);
    failed = true;
  }
};

void read(const std::string& argument, Input& input) {
  try {
    for (const std::string& file : files_of(argument)) {
      try {
        input.records.push_back(parse_flight_record(read_file(file, kFlightRecordBytesMax)));
        input.names.push_back(file);
      } catch (const Error& error) {
        const bool named = error.code() == Code::io;
        input.complain(named ? error.what() : fmt::format("'{}' is {}", file, error.what()));
      }
    }
  } catch (const std::exception& error) {  // a folder that cannot be listed
    input.complain(error.what());
  }
}

int answer(Input input, bool json) {
  std::vector<std::string> notes;
  const auto groups = sort_records(std::move(input.records), input.names, notes);
  for (const std::string& note : notes) fmt::print(stderr, "lockstep blame: {}\n", note);
  for (const auto& records : groups) {
    const Blame found = blame(records);
    if (json) {
      fmt::print("{}\n", to_json(found));
      continue;
    }
    if (groups.size() > 1) fmt::print("group {}: ", found.group);
    fmt::print("{}", to_text(found));
  }
  if (groups.empty()) fmt::print(stderr, "lockstep blame: there is no record to read\n");
  return input.failed || groups.empty() ? kUsage : 0;
}

}  // namespace

int blame_command(int argc, char** argv) {
  Input input;
  bool json = false;
  bool any = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      print_help();
      return 0;
    }
    if (argument == "--json") {
      json = true;
    } else if (argument.size() > 1 && argument[0] == '-') {
      fmt::print(stderr, "lockstep blame: unknown flag '{}'; `lockstep blame --help`\n", argument);
      return kUsage;
    } else {
      any = true;
      read(argument, input);
    }
  }
  if (!any) {
    fmt::print(stderr, "lockstep blame: no file given; `lockstep blame --help`\n");
    return kUsage;
  }
  return answer(std::move(input), json);
}

}  // namespace lockstep::cli
