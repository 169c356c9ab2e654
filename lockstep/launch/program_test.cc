#include "lockstep/launch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/env/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FindProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* each : {"first", "second"}) fs::create_directory(folder_ / each);
    path_ = (folder_ / "first").string() + ":" + (folder_ / "second").string();
  }

  std::string make(const std::string& name, bool executable) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\n";
    fs::permissions(path, executable ? fs::perms::owner_all : fs::perms::owner_read);
    return path.string();
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::string path_;
};

TEST_F(FindProgram, LooksThroughPathAndPassesOverWhatCannotRun) {
  make("first/tool", false);
  const std::string runnable = make("second/tool", true);
  EXPECT_EQ(find_program("tool", path_).path, runnable);
  EXPECT_EQ(find_program(runnable, "").path, runnable);
}

TEST_F(FindProgram, SaysWhatIsWrong) {
  const std::string plain = make("first/tool", false);
  EXPECT_EQ(find_program("tool", path_).exit_status, 126);
  EXPECT_THAT(find_program("tool", path_).problem, HasSubstr(plain + ": Permission denied"));
  EXPECT_EQ(find_program(plain, path_).exit_status, 126);
  EXPECT_EQ(find_program(folder_.string(), path_).exit_status, 126);
  EXPECT_EQ(find_program("absent", path_).exit_status, 127);
  EXPECT_THAT(find_program("absent", path_).problem, HasSubstr("'absent': not found in PATH"));
  EXPECT_EQ(find_program("", path_).exit_status, 127);
  const std::string missing = (folder_ / "none").string();
  EXPECT_EQ(find_program(missing, path_).exit_status, 127);
  EXPECT_THAT(find_program(missing, path_).problem, HasSubstr(missing));
  EXPECT_EQ(find_program(plain + "/below", path_).exit_status, 127);
}

}  // namespace
}  // namespace lockstep
