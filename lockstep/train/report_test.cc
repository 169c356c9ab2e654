#include "lockstep/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::Not;

Report some_report() {
  Report report;
  report.model = "cnn";
  report.dataset = "idx";
  report.ranks = 2;
  report.steps = 2814;
  report.epochs = 3;
  report.accuracy = 0.9231;
  report.loss = 0.2;
  report.train_seconds = 85;
  report.bytes_reduced = 13'500'000'000;
  report.parameter_checksum = {"0123456789abcdef", "0123456789abcdef"};
  return report;
}

TEST(Report, JsonHoldsTheAgreedKeys) {
  const auto json = nlohmann::json::parse(to_json(some_report()));
  for (const char* key : {"accuracy",
                          "loss",
                          "samples_per_s",
                          "epochs",
                          "steps",
                          "ranks",
                          "global_batch",
                          "step_ms",
                          "compute_ms",
                          "exposed_comm_ms",
                          "bytes_reduced",
                          "parameter_checksum",
                          "train_seconds",
                          "time_to_first_step_s",
                          "lockstep_version",
                          "libtorch_version",
                          "model",
                          "dataset",
                          "transport",
                          "threads_per_rank"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["accuracy"], 0.9231);
  EXPECT_EQ(json["parameter_checksum"].size(), 2u);
}

TEST(Report, WithoutEvaluationAccuracyIsNull) {
  Report report = some_report();
  report.accuracy.reset();
  report.loss.reset();
  report.data = "not \xff UTF-8";
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json["accuracy"].is_null());
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_THAT(to_table(report), Not(HasSubstr("accuracy")));
}

TEST(Report, TheTableSaysWhetherReplicasAreIdentical) {
  Report report = some_report();
  EXPECT_THAT(to_table(report), HasSubstr("92.31 %"));
  EXPECT_THAT(to_table(report), HasSubstr("13.5 GB"));
  EXPECT_THAT(to_table(report), HasSubstr("2, bit-identical"));
  report.parameter_checksum[1] = "f";
  EXPECT_THAT(to_table(report), HasSubstr("DIFFERENT"));
}

TEST(Report, Median) {
  std::vector<double> none, one = {3}, even = {4, 1, 3, 2}, odd = {9, 1, 5};
  EXPECT_EQ(median(none), 0);
  EXPECT_EQ(median(one), 3);
  EXPECT_EQ(median(even), 2.5);
  EXPECT_EQ(median(odd), 5);
}

TEST(Report, NumbersForPeople) {
  EXPECT_EQ(human_seconds(3.21), "3.2 s");
  EXPECT_EQ(human_seconds(59.4), "59 s");
  EXPECT_EQ(human_seconds(72), "1 min 12 s");
  EXPECT_EQ(human_seconds(3780), "1 h 03 min");
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1'199'882), "1,199,882");
}

}  // namespace
}  // namespace lockstep::train
