#include "lockstep/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LaunchOptions parse(const std::vector<std::string>& arguments) {
  return parse_launch_options(arguments);
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(LaunchOptions, HaveDefaults) {
  const LaunchOptions options = parse({"program"});
  EXPECT_EQ(options.ranks, 0);
  EXPECT_EQ(options.port, 0);
  EXPECT_TRUE(options.pin);
  EXPECT_EQ(options.prefix, PrefixMode::automatic);
  EXPECT_EQ(options.log_dir, "");
  EXPECT_EQ(options.grace.count(), 1000);
  EXPECT_THAT(options.command, ElementsAre("program"));
}

TEST(LaunchOptions, TakeEveryFormOfAValue) {
  EXPECT_EQ(parse({"-n", "3", "p"}).ranks, 3);
  EXPECT_EQ(parse({"-n3", "p"}).ranks, 3);
  EXPECT_EQ(parse({"--ranks=3", "p"}).ranks, 3);
  EXPECT_EQ(parse({"--ranks", "4096", "p"}).ranks, 4096);
  EXPECT_EQ(parse({"--port=65535", "p"}).port, 65535);
  EXPECT_EQ(parse({"--grace", "0.25", "p"}).grace.count(), 250);
  EXPECT_EQ(parse({"--prefix", "never", "p"}).prefix, PrefixMode::never);
  EXPECT_EQ(parse({"--log-dir", "logs", "p"}).log_dir, "logs");
  EXPECT_FALSE(parse({"--no-pin", "p"}).pin);
  EXPECT_TRUE(parse({"-n", "2", "--help"}).help);
}

TEST(LaunchOptions, StopAtTheProgram) {
  EXPECT_THAT(parse({"-n", "2", "p", "-n", "9", "--"}).command, ElementsAre("p", "-n", "9", "--"));
  EXPECT_THAT(parse({"--", "-p", "--help"}).command, ElementsAre("-p", "--help"));
}

TEST(LaunchOptions, RefuseWhatCannotBe) {
  for (const char* bad : {"0", "-1", "abc", "", "2.5", "4097", "99999999999999999999", " 2"}) {
    EXPECT_THAT(refusal({"-n", bad, "p"}),
                HasSubstr(std::string("from 1 to 4096, not '") + bad + "'"));
  }
  for (const char* bad : {"-1", "65536", "80a", ""}) {
    EXPECT_THAT(refusal({"--port", bad, "p"}), HasSubstr(std::string("not '") + bad + "'"));
  }
  for (const char* bad : {"-1", "nan", "inf", "1s", "", "3601"}) {
    EXPECT_THAT(refusal({"--grace", bad, "p"}), HasSubstr(std::string("not '") + bad + "'"));
  }
  EXPECT_THAT(refusal({"--prefix", "on", "p"}), HasSubstr("auto, always or never"));
  EXPECT_THAT(refusal({"--no-pin=1", "p"}), HasSubstr("takes no value"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({}), HasSubstr("no program to run"));
  EXPECT_THAT(refusal({"-n", "2", "--"}), HasSubstr("no program to run"));
}

TEST(LaunchOptions, NameTheNearestKnownOption) {
  EXPECT_THAT(refusal({"--log-dri", "x", "p"}), HasSubstr("did you mean --log-dir?"));
  EXPECT_THAT(refusal({"--rank", "2", "p"}), HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(refusal({"-x", "p"}), HasSubstr("--help"));
}

TEST(LaunchOptions, HelpNamesThemAll) {
  for (const char* name :
       {"-n, --ranks", "--port", "--no-pin", "--prefix", "--log-dir", "--grace"}) {
    EXPECT_THAT(launch_help(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace lockstep
