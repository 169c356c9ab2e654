#include "lockstep/launch/memory_events.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/env/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class MemoryEvents : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { folder_.write(path, text); }

  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(MemoryEvents, CountsInVersionTwo) {
  write("proc/self/cgroup", "0::/job\n");
  write("proc/self/mountinfo", "30 1 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 2\nmax 9\noom 4\noom_kill 3\n");
  EXPECT_EQ(out_of_memory_kills(root_), 3);
}

TEST_F(MemoryEvents, CountsInVersionOne) {
  write("proc/self/cgroup", "4:memory:/job\n0::/\n");
  write("proc/self/mountinfo", "30 1 0:2 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(out_of_memory_kills(root_), 5);
}

TEST_F(MemoryEvents, FallBackToTheHost) {
  EXPECT_FALSE(out_of_memory_kills(root_).has_value());
  write("proc/vmstat", "pgfault 12\noom_kill 2\n");
  EXPECT_EQ(out_of_memory_kills(root_), 2);
}

}  // namespace
}  // namespace lockstep
