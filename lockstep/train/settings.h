// Everything `lockstep train` can be told: one struct, described by one table from which the flags,
// the settings file, the help and docs/settings-train.md are made, validated once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::train {

struct TrainSettings {
  std::string model = "cnn";
  std::string dataset = "idx";
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::int64_t classes = 10;
  double validation_fraction = 0.1;

  std::int64_t epochs = 3;
  std::int64_t steps = 0;
  std::int64_t batch = 64;
  std::int64_t batch_per_rank = 0;
  bool drop_last = false;
  std::int64_t seed = 1;

  std::string optimizer = "sgd";
  double lr = 0.05;
  std::string lr_schedule = "constant";
  std::string lr_scaling = "none";
  std::int64_t base_batch = 0;
  std::int64_t warmup_steps = 0;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double clip_norm = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;

  double dropout = 0;
  std::string norm = "batch";
  std::int64_t layers = 4;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t vocabulary = 256;
  std::int64_t length = 64;

  std::int64_t eval_every = 1;
  std::int64_t eval_batch = 500;
  std::int64_t check_replicas = 100;
  std::string output;
  std::string report;
  std::string trace;
  std::int64_t log_every = 0;

  std::int64_t threads = 0;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  bool channels_last = true;
};

using Field = std::variant<std::string TrainSettings::*, std::int64_t TrainSettings::*,
                           double TrainSettings::*, bool TrainSettings::*>;

struct Setting {
  std::string_view name;  // in the settings file; the flag is --name with '-' for '_'
  Field field;
  std::string_view unit;
  double min = 0;  // for numbers: both bounds are allowed values
  double max = 0;
  std::string_view choices;  // for text: "a|b|c"; empty: anything
  std::string_view help;
};

std::span<const Setting> setting_table();

// A value as a settings file gives it.
using Value = std::variant<bool, std::int64_t, double, std::string>;

// Sets one field. Throws Error(invalid_argument) "<where>: …" for a wrong type, a value out of
// bounds or an unknown choice.
void assign(TrainSettings& settings, const Setting& setting, const Value& value,
            std::string_view where);

// The row called `name`. Throws Error(invalid_argument) "<where>: unknown setting …" with the
// nearest known name.
const Setting& find_setting(std::string_view name, std::string_view where);

// Checks what no single row can: combinations, and the batch against the number of ranks. Replaces
// batch_per_rank by the batch it means; `given` are the names that the user set.
void validate(TrainSettings& settings, const std::vector<std::string>& given, int ranks);

// Text forms of a row, for help and documentation.
std::string type_of(const Setting& setting);
std::string default_of(const Setting& setting);
std::string bounds_of(const Setting& setting);
// docs/settings-train.md.
std::string settings_page();

}  // namespace lockstep::train
