#include "lockstep/group/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/env/files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  return Settings::from([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

const Variables kGood = {{"RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"}};

std::string refusal(Variables variables, const std::string& name, const char* value) {
  if (value == nullptr)
    variables.erase(name);
  else
    variables[name] = value;
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Settings, ReadsWhatLaunchersSet) {
  const Settings settings = read(kGood);
  EXPECT_EQ(settings.rank, 1);
  EXPECT_EQ(settings.world_size, 4);
  EXPECT_EQ(settings.local_rank, 1);
  EXPECT_EQ(settings.local_world_size, 2);
  EXPECT_EQ(settings.master_addr, "10.0.0.1");
  EXPECT_EQ(settings.master_port, 29500);
}

TEST(Settings, NothingSetIsAWorldOfOne) {
  EXPECT_EQ(read({}).world_size, 1);
  EXPECT_EQ(read({{"OMP_NUM_THREADS", "3"}}).compute_threads, 3);
}

TEST(Settings, AMissingVariableIsNamedAndNeverASilentSingleProcess) {  // S-RDV-03
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(refusal(kGood, name, nullptr), HasSubstr(std::string(name) + " is not set"));
    EXPECT_THAT(refusal(kGood, name, ""), HasSubstr(name));
  }
  EXPECT_THAT(refusal({{"RANK", "0"}}, "x", nullptr), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refusal({{"MASTER_ADDR", "a"}}, "x", nullptr), HasSubstr("WORLD_SIZE"));
}

TEST(Settings, MalformedNumbersAreShownWithTheirBounds) {  // S-RDV-03
  for (const char* bad : {"4", "-1", "1 ", "abc", "01", "1.0", "0x1"}) {
    const std::string said = refusal(kGood, "RANK", bad);
    EXPECT_THAT(said, HasSubstr("RANK='" + std::string(bad) + "'"));
    EXPECT_THAT(said, HasSubstr("from 0 to 3"));
  }
  for (const char* bad : {"0", "99999", "80a"}) {
    EXPECT_THAT(refusal(kGood, "MASTER_PORT", bad), HasSubstr("from 1 to 65535"));
  }
  for (const char* bad : {"0", "-2", "two"}) {
    EXPECT_THAT(refusal(kGood, "WORLD_SIZE", bad), HasSubstr("WORLD_SIZE"));
  }
  EXPECT_THAT(refusal(kGood, "LOCAL_RANK", "2"), HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_TRANSPORT", "ib"), HasSubstr("auto, shm, tcp"));
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_TIMEOUT", "5s"), HasSubstr("LOCKSTEP_TIMEOUT='5s'"));
}

TEST(Settings, FlightRecordsGoWhereTemporaryFilesGoUnlessToldOtherwise) {
  EXPECT_EQ(read(kGood).record_folder, "/tmp");
  EXPECT_EQ(read({{"TMPDIR", "/scratch"}}).record_folder, "/scratch");
  EXPECT_EQ(read({{"TMPDIR", "/scratch"}, {"LOCKSTEP_RECORD", "/r"}}).record_folder, "/r");
  EXPECT_EQ(read({{"LOCKSTEP_RECORD", "none"}}).record_folder, "");
  EXPECT_EQ(Settings().record_folder, "");
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_RECORD", ""), HasSubstr("LOCKSTEP_RECORD"));
}

TEST(Settings, PricesComeFromTheTuningFile) {
  const std::string file = ::testing::TempDir() + "settings_test_prices.json";
  Prices prices;
  prices.latency_us = 77;
  write_file_atomically(file, to_json(prices));
  EXPECT_EQ(read({{"LOCKSTEP_TUNING", file}}).prices, prices);
  EXPECT_EQ(read(kGood).prices, Prices());
  write_file_atomically(file, "{}");
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_TUNING", file.c_str()),
              AllOf(HasSubstr("LOCKSTEP_TUNING"), HasSubstr(file), HasSubstr("'latency_us'")));
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_TUNING", "/nowhere/at/all"), HasSubstr("/nowhere/at/all"));
}

TEST(Settings, AStallIsAMatterOfSeconds) {
  EXPECT_EQ(read(kGood).stall_after, std::chrono::seconds(10));
  EXPECT_EQ(read({{"LOCKSTEP_STALL_AFTER", "3"}}).stall_after, std::chrono::seconds(3));
  EXPECT_THAT(refusal(kGood, "LOCKSTEP_STALL_AFTER", "0"), HasSubstr("LOCKSTEP_STALL_AFTER='0'"));
}

TEST(Settings, TheStoreKeepsOffThePortThatTorchrunHolds) {
  Variables variables = kGood;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables).master_port, 29501);
}

}  // namespace
}  // namespace lockstep
