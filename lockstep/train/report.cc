#include "lockstep/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"

namespace lockstep::train {

std::string to_json(const Report& r) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  const nlohmann::ordered_json json = {
      {"model", r.model},
      {"parameters", r.parameter_count},
      {"dataset", r.dataset},
      {"data", r.data},
      {"train_samples", r.train_samples},
      {"test_samples", r.test_samples},
      {"ranks", r.ranks},
      {"threads_per_rank", r.threads_per_rank},
      {"transport", r.transport},
      {"global_batch", r.global_batch},
      {"epochs", r.epochs},
      {"steps", r.steps},
      {"accuracy", number(r.accuracy)},
      {"loss", number(r.loss)},
      {"train_loss", r.train_loss},
      {"train_seconds", r.train_seconds},
      {"samples_per_s", r.samples_per_s},
      {"step_ms", r.step_ms},
      {"compute_ms", r.compute_ms},
      {"exposed_comm_ms", r.exposed_comm_ms},
      {"step_statistic", "median of rank 0"},
      {"bytes_reduced", r.bytes_reduced},
      {"time_to_first_step_s", r.time_to_first_step_s},
      {"parameter_checksum", r.parameter_checksum},
      {"lockstep_version", r.lockstep_version},
      {"libtorch_version", r.libtorch_version},
      {"saved_model", r.saved_model},
  };
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_table(const Report& r) {
  std::string table;
  const auto row = [&](std::string_view name, const std::string& value) {
    table += fmt::format("  {:<16}{}\n", name, value);
  };
  const bool text = r.dataset == "text";
  table += "\n";
  if (r.accuracy) {
    row(text ? "next byte right" : "test accuracy",
        fmt::format("{:.2f} % of {} test {}", *r.accuracy * 100, with_commas(r.test_samples),
                    text ? "samples" : "images"));
  }
  if (r.loss) row("test loss", fmt::format("{:.4f}", *r.loss));
  row("train loss", fmt::format("{:.4f}", r.train_loss));
  row("training time", fmt::format("{} for {} steps ({} epochs)", human_seconds(r.train_seconds),
                                   with_commas(r.steps), r.epochs));
  row("speed", fmt::format("{:.0f} samples/s on {} rank{}", r.samples_per_s, r.ranks,
                           r.ranks == 1 ? "" : "s"));
  row("median step", fmt::format("{:.2f} ms: {:.2f} ms computing, {:.2f} ms exposed communication",
                                 r.step_ms, r.compute_ms, r.exposed_comm_ms));
  if (r.bytes_reduced > 0) {
    row("reduced", human_bytes(static_cast<double>(r.bytes_reduced)) + " of gradients per rank");
  }
  const bool identical = std::equal(r.parameter_checksum.begin() + 1, r.parameter_checksum.end(),
                                    r.parameter_checksum.begin());
  row("replicas", r.ranks == 1 ? "one"
                  : identical  ? fmt::format("{}, bit-identical", r.ranks)
                               : fmt::format("{}, DIFFERENT from each other", r.ranks));
  if (!r.saved_model.empty()) row("model saved", r.saved_model);
  return table;
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::string human_seconds(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string with_commas(std::int64_t number) {
  const std::string digits = fmt::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace lockstep::train
