// What one training came to: for the summary on screen and for --report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

struct Report {
  std::string model;
  std::int64_t parameter_count = 0;
  std::string dataset;  // kind
  std::string data;     // where it was read from
  std::int64_t train_samples = 0;
  std::int64_t test_samples = 0;
  int ranks = 1;
  int threads_per_rank = 1;
  std::string transport;
  std::int64_t global_batch = 0;

  // Epochs that were finished, and steps in all.
  std::int64_t epochs = 0;
  std::int64_t steps = 0;
  // Share of test samples (text: of test tokens) that were right, and the mean loss over them;
  // empty when there was no evaluation.
  std::optional<double> accuracy;
  std::optional<double> loss;
  // Mean training loss of the last epoch, over all ranks.
  double train_loss = 0;

  // Time in training steps alone, evaluation left out, and the samples of all ranks in it.
  double train_seconds = 0;
  double samples_per_s = 0;
  // Of rank 0; medians over all steps but the first. step = compute + exposed communication.
  double step_ms = 0;
  double compute_ms = 0;
  double exposed_comm_ms = 0;
  // Gradient bytes that rank 0 gave into reductions.
  std::int64_t bytes_reduced = 0;
  // From the start of the process to the end of its first step.
  double time_to_first_step_s = 0;
  std::vector<std::string> parameter_checksum;  // of each rank
  std::string lockstep_version;
  std::string libtorch_version;
  std::string saved_model;  // path; empty when it was not saved
};

std::string to_json(const Report& report);

// The table at the end, lines included.
std::string to_table(const Report& report);

// 0 for no values; reorders them.
double median(std::vector<double>& values);

// "1 min 12 s"
std::string human_seconds(double seconds);

// "1,199,882"
std::string with_commas(std::int64_t number);

}  // namespace lockstep::train
