#include "lockstep/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::Not;

// A stream that is read back.
class Stream {
 public:
  Stream() : file_(::open_memstream(&text_, &bytes_)) {}
  ~Stream() {
    std::fclose(file_);
    std::free(text_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, bytes_};
  }

 private:
  char* text_ = nullptr;
  std::size_t bytes_ = 0;
  std::FILE* file_;
};

Report some_report() {
  Report report;
  report.model = "cnn";
  report.parameter_count = 1'199'882;
  report.data = "/data";
  report.ranks = 2;
  report.transport = "shared memory";
  report.parameter_checksum = {"a", "a"};
  return report;
}

TEST(Progress, PrintsTenPlainLinesAnEpochWithoutATerminal) {
  Stream lines;
  Progress progress(lines.file(), nullptr);
  progress.begin(some_report(), {.epochs = 2, .steps_per_epoch = 100, .total_steps = 200});
  for (std::int64_t step = 0; step < 100; ++step) {
    progress.step({.epoch = 0,
                   .step = step,
                   .global_count = 64,
                   .loss = 0.5,
                   .step_ms = 32,
                   .exposed_comm_ms = 8});
  }
  progress.epoch({.epoch = 0, .train_loss = 0.5, .accuracy = 0.9012, .loss = 0.3, .seconds = 75});
  const std::string text = lines.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 10 + 1);
  EXPECT_THAT(text, HasSubstr("cnn, 1,199,882 parameters"));
  EXPECT_THAT(text, HasSubstr("2 ranks, 1 thread each, shared memory"));
  EXPECT_THAT(text,
              HasSubstr("epoch 1/2  step 100/200  loss 0.5000  2000 samples/s  75 % computing, "
                        "25 % exposed communication  3.2 s left\n"));
  EXPECT_THAT(text, HasSubstr("epoch 1/2 done in 1 min 15 s: train loss 0.5000, test loss 0.3000, "
                              "test accuracy 90.12 %\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(Progress, RewritesOneLineOnATerminal) {
  Stream lines;
  Stream live;
  Progress progress(lines.file(), live.file());
  progress.begin(some_report(), {.epochs = 1, .steps_per_epoch = 1000, .total_steps = 1000});
  for (std::int64_t step = 0; step < 1000; ++step) {
    progress.step({.epoch = 0, .step = step, .global_count = 64, .loss = 0.5, .step_ms = 1});
  }
  progress.epoch({.epoch = 0, .train_loss = 0.5});
  const std::string shown = live.text();
  EXPECT_EQ(shown.find("\r\x1b[K"
                       "epoch 1/1  step 1/1000"),
            0u);
  EXPECT_EQ(shown.find('\n'), std::string::npos);
  EXPECT_EQ(shown.rfind("\r\x1b[K"), shown.size() - 4);  // gone before the line of the epoch
  EXPECT_LT(std::count(shown.begin(), shown.end(), '\r'), 100);
  const std::string plain = lines.text();
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 2);
}

}  // namespace
}  // namespace lockstep::train
