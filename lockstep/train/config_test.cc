#include "lockstep/train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/env/files.h"
#include "lockstep/env/temporary_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Config : public testing::Test {
 protected:
  TrainSettings parse(const std::string& toml, std::vector<std::string> flags, int ranks = 1) {
    if (!toml.empty()) {
      write_file_atomically(path_, toml);
      flags.insert(flags.begin(), path_);
    }
    return parse_command(flags, ranks).settings;
  }
  std::string error_of(const std::string& toml, const std::vector<std::string>& flags,
                       int ranks = 1) {
    try {
      parse(toml, flags, ranks);
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      return text;
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const std::string path_ = (folder_ / "job.toml").string();
};

TEST_F(Config, FlagsOverrideTheFile) {
  const TrainSettings s = parse(
      "model = 'mlp'  # a comment\nlr = 1\nbatch = 32\ndrop_last = true\nchannels_last = false\n",
      {"--batch", "48", "--lr=0.25", "--drop-last=false", "--nesterov", "--output", "out"});
  EXPECT_EQ(s.model, "mlp");
  EXPECT_EQ(s.batch, 48);
  EXPECT_EQ(s.lr, 0.25);
  EXPECT_FALSE(s.drop_last);
  EXPECT_FALSE(s.channels_last);
  EXPECT_TRUE(s.nesterov);
  EXPECT_EQ(s.output, "out");
  EXPECT_EQ(s.seed, TrainSettings().seed);
}

TEST_F(Config, WithoutArgumentsEverythingIsTheDefault) {
  EXPECT_EQ(parse("", {}).model, "cnn");
  EXPECT_EQ(parse("", {}).batch, 64);
}

TEST_F(Config, AnUnknownKeyIsToldWithLineAndNearestName) {
  EXPECT_EQ(error_of("lr = 0.1\n\nmodle = 'cnn'\n", {}),
            path_ + ":3: unknown setting 'modle'; did you mean 'model'?");
  EXPECT_THAT(error_of("[model]\nname = 'cnn'\n", {}), HasSubstr(":1: model must be one of mlp"));
  EXPECT_THAT(error_of("quux = 1\n", {}), HasSubstr("--list-settings"));
  EXPECT_EQ(error_of("", {"--modle", "cnn"}), "unknown flag '--modle'; did you mean '--model'?");
  EXPECT_THAT(error_of("", {"--batchperrank=4"}), HasSubstr("did you mean '--batch-per-rank'?"));
}

TEST_F(Config, TheFirstMistakeOfTheFileIsTold) {
  EXPECT_THAT(error_of("zzz = 1\naaa = 2\n", {}), HasSubstr(":1: unknown setting 'zzz'"));
}

TEST_F(Config, AnUnknownValueIsToldWithLineAndNearestName) {
  EXPECT_EQ(error_of("\nmodel = 'resnet-18'\n", {}),
            path_ +
                ":2: unknown model 'resnet-18'; did you mean 'resnet18'?; known are mlp, cnn, "
                "resnet18, gpt");
  EXPECT_THAT(error_of("", {"--optimizer", "adma"}),
              AllOf(StartsWith("--optimizer: "), HasSubstr("did you mean 'adam'?")));
}

TEST_F(Config, WrongTypesAndBoundsAreToldWithLine) {
  EXPECT_EQ(error_of("batch = 'many'\n", {}),
            path_ + ":1: batch must be a whole number in [1, 2147483647], found 'many'");
  EXPECT_THAT(error_of("batch = 1.5\n", {}), HasSubstr("found 1.5"));
  EXPECT_THAT(error_of("batch = 0\n", {}), HasSubstr("found 0"));
  EXPECT_THAT(error_of("lr = nan\n", {}), HasSubstr("found nan"));
  EXPECT_THAT(error_of("lr = [1]\n", {}), HasSubstr("found a TOML array"));
  EXPECT_THAT(error_of("model = 3\n", {}), HasSubstr("model must be one of mlp, cnn"));
  EXPECT_THAT(error_of("nesterov = 1\n", {}), HasSubstr("true or false, found 1"));
  EXPECT_EQ(error_of("", {"--momentum", "1.5"}),
            "--momentum: momentum must be a number in [0, 0.9999], found 1.5");
  EXPECT_THAT(error_of("", {"--epochs", "three"}), HasSubstr("found 'three'"));
  EXPECT_THAT(error_of("", {"--epochs", "99999999999999999999"}), HasSubstr("[1, 1000000]"));
  EXPECT_THAT(error_of("", {"--lr=-1"}), HasSubstr("found -1"));
  EXPECT_THAT(error_of("", {"--drop-last=maybe"}), HasSubstr("found 'maybe'"));
}

TEST_F(Config, TomlThatIsNoneIsToldWithLine) {
  EXPECT_THAT(error_of("lr = 0.1\nbatch = \n", {}), StartsWith(path_ + ":2: "));
  EXPECT_THAT(error_of("lr = 1\nlr = 2\n", {}), StartsWith(path_ + ":2: "));
  EXPECT_THAT(error_of(std::string("\0\xff\xfe", 3), {}), StartsWith(path_ + ":1: "));
  EXPECT_THAT(error_of("", {(folder_ / "absent.toml").string()}),
              AllOf(HasSubstr("absent.toml"), HasSubstr("No such file")));
}

TEST_F(Config, BadCommandLinesAreToldInOneLine) {
  EXPECT_THAT(error_of("", {"--batch"}), HasSubstr("--batch"));
  EXPECT_THAT(error_of("", {"--batch", "1", "--batch", "2"}), HasSubstr("--batch"));
  EXPECT_THAT(error_of("lr = 1\n", {"second.toml"}),
              HasSubstr("unexpected argument 'second.toml'"));
}

TEST_F(Config, MoreRanksThanSamplesInABatchAreRefused) {
  EXPECT_EQ(parse("batch = 4\n", {}, 4).batch, 4);
  EXPECT_THAT(error_of("batch = 3\n", {}, 4),
              AllOf(HasSubstr("batch = 3"), HasSubstr("the 4 ranks")));
}

TEST_F(Config, BatchPerRankTimesRanksIsTheBatch) {
  EXPECT_EQ(parse("batch_per_rank = 8\n", {}, 3).batch, 24);
  EXPECT_THAT(error_of("batch = 8\nbatch_per_rank = 8\n", {}), HasSubstr("set one of them"));
  EXPECT_THAT(error_of("batch_per_rank = 2147483647\n", {}, 2), HasSubstr("too large"));
}

TEST_F(Config, CombinationsThatMakeNoSenseAreRefused) {
  EXPECT_THAT(error_of("model = 'gpt'\n", {}), HasSubstr("gpt needs dataset = text"));
  EXPECT_THAT(error_of("dataset = 'text'\n", {}), HasSubstr("text is for model = gpt"));
  EXPECT_THAT(error_of("model = 'gpt'\ndataset = 'text'\nheads = 3\n", {}), HasSubstr("heads = 3"));
  EXPECT_THAT(error_of("lr_scaling = 'linear'\n", {}), HasSubstr("needs base_batch"));
  EXPECT_THAT(error_of("base_batch = 64\n", {}), HasSubstr("makes no use of it"));
  EXPECT_THAT(error_of("nesterov = true\nmomentum = 0\n", {}), HasSubstr("nesterov needs"));
}

TEST_F(Config, HelpAndTheListNameEverySetting) {
  const std::vector<std::string> help = {"--help"};
  const std::vector<std::string> list = {"--list-settings"};
  EXPECT_EQ(parse_command(help, 1).action, Command::Action::print);
  std::set<std::string_view> names;
  for (const Setting& setting : setting_table()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_THAT(parse_command(list, 1).text, HasSubstr("| `" + std::string(setting.name) + "` |"));
    std::string flag = "--" + std::string(setting.name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(parse_command(help, 1).text, HasSubstr(flag));
  }
}

TEST_F(Config, EveryDefaultIsAllowed) {
  const TrainSettings defaults;
  for (const Setting& setting : setting_table()) {
    TrainSettings copy;
    const Value value =
        std::visit([&](auto field) -> Value { return defaults.*field; }, setting.field);
    EXPECT_NO_THROW(assign(copy, setting, value, "default")) << setting.name;
  }
}

}  // namespace
}  // namespace lockstep::train
