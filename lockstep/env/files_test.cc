#include "lockstep/env/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/env/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  int entries() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++count;
    return count;
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST_F(Files, WritesWhatItReads) {
  const std::string binary("a\0b\n\xff", 5);
  write_file_atomically(folder_ / "x", "old");
  write_file_atomically(folder_ / "x", binary);
  EXPECT_EQ(read_file(folder_ / "x", 5), binary);
  write_file_atomically(folder_ / "x", "");
  EXPECT_EQ(read_file(folder_ / "x", 0), "");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, NewFilesHaveOrdinaryPermissions) {
  write_file_atomically(folder_ / "x", "1");
  std::ofstream(folder_ / "y") << "1";
  EXPECT_EQ(fs::status(folder_ / "x").permissions(), fs::status(folder_ / "y").permissions());
}

TEST_F(Files, AFailedWriteNamesThePathAndLeavesNothing) {
  EXPECT_THAT(error_of([&] { write_file_atomically(folder_ / "absent" / "x", "1"); }),
              HasSubstr((folder_ / "absent" / "x").string()));
  fs::create_directory(folder_ / "sub");
  EXPECT_THAT(error_of([&] { write_file_atomically(folder_ / "sub", "1"); }),
              HasSubstr("it is a folder"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, AFullDiskLeavesTheOldFile) {
  write_file_atomically(folder_ / "x", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(folder_ / "x", std::string(5000, 'n'));
    } catch (const Error&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  EXPECT_EQ(read_file(folder_ / "x", 100), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, RequireWritableFolderMakesItAndLeavesItEmpty) {
  require_writable_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_empty(folder_ / "a" / "b"));
  write_file_atomically(folder_ / "file", "1");
  EXPECT_THAT(error_of([&] { require_writable_folder(folder_ / "file" / "b"); }),
              HasSubstr((folder_ / "file" / "b").string()));
  EXPECT_THAT(error_of([&] { require_writable_folder("/proc/lockstep"); }), HasSubstr("/proc"));
}

TEST_F(Files, ReadSaysWhatIsWrong) {
  EXPECT_THAT(error_of([&] { read_file(folder_ / "absent", 10); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of([&] { read_file(folder_, 10); }), HasSubstr("it is a folder"));
  write_file_atomically(folder_ / "x", std::string(11, 'x'));
  EXPECT_EQ(read_file(folder_ / "x", 11).size(), 11u);
  EXPECT_THAT(error_of([&] { read_file(folder_ / "x", 10); }), HasSubstr("larger than 10 bytes"));
}

TEST_F(Files, ReadsFilesWithoutASize) {
  EXPECT_THAT(read_file("/proc/self/status", 1 << 20), HasSubstr("Pid:"));
}

}  // namespace
}  // namespace lockstep
