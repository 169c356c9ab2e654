#include "lockstep/data/position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(DataPosition, IsTheWrittenText) {
  EXPECT_EQ(to_json({.epoch = 3, .samples_done = 480, .sample_count = 60'000, .seed = 7}),
            R"({"lockstep_data_position":1,"epoch":3,"samples_done":480,"sample_count":60000,)"
            R"("seed":7,"shuffle":true})");
}

TEST(DataPosition, ComesBack) {
  const DataPosition everything{.epoch = std::numeric_limits<std::int64_t>::max(),
                                .samples_done = std::numeric_limits<std::int64_t>::max() - 1,
                                .sample_count = std::numeric_limits<std::int64_t>::max(),
                                .seed = std::numeric_limits<std::uint64_t>::max(),
                                .shuffle = false};
  EXPECT_EQ(position_of_json(to_json(everything)), everything);
  EXPECT_EQ(position_of_json(to_json({})), DataPosition());
}

struct Refusal {
  const char* text;
  Code code;
  const char* said;
};

TEST(DataPosition, RefusesWhatItCannotHaveWritten) {
  const Refusal refusals[] = {
      {"", Code::corrupt, "JSON object"},
      {"[1]", Code::corrupt, "JSON object"},
      {R"({"lockstep_data_position":1,"epoch":3,"sam)", Code::corrupt, "JSON object"},
      {R"({"epoch":3})", Code::corrupt, "lockstep_data_position"},
      {R"({"lockstep_data_position":2,"epoch":3})", Code::unsupported, "version 2"},
      {R"({"lockstep_data_position":1,"epoch":-3})", Code::corrupt, "needs epoch"},
      {R"({"lockstep_data_position":1,"epoch":1.5})", Code::corrupt, "needs epoch"},
      {R"({"lockstep_data_position":1,"epoch":9223372036854775808})", Code::corrupt, "needs epoch"},
      {R"({"lockstep_data_position":1,"epoch":0,"samples_done":10,"sample_count":10,"seed":1,)"
       R"("shuffle":true})",
       Code::corrupt, "10 samples done of 10"},
      {R"({"lockstep_data_position":1,"epoch":0,"samples_done":1,"sample_count":10,"seed":1,)"
       R"("shuffle":1})",
       Code::corrupt, "needs shuffle"},
  };
  for (const Refusal& refusal : refusals) {
    try {
      position_of_json(refusal.text);
      ADD_FAILURE() << refusal.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), refusal.code) << refusal.text;
      EXPECT_THAT(error.what(), HasSubstr(refusal.said));
    }
  }
}

// No prefix of a position is one.
TEST(DataPosition, RefusesTornTexts) {
  const std::string whole = to_json({.epoch = 12, .samples_done = 3, .sample_count = 5});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(position_of_json(whole.substr(0, length)), Error);
  }
}

}  // namespace
}  // namespace lockstep
