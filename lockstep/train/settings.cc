#include "lockstep/train/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {

namespace {

using S = TrainSettings;
constexpr double kMany = 1e15;  // whole numbers up to here are exact as double
constexpr double kInts = 2147483647;

constexpr std::array kTable = {
    Setting{"model", &S::model, "", 0, 0, "mlp|cnn|resnet18|gpt", "What is trained."},
    Setting{
        "dataset", &S::dataset, "", 0, 0, "idx|cifar10|text",
        "Kind of the data: MNIST's IDX files (plain or .gz), CIFAR-10's binary files, or one text "
        "file read as bytes (for gpt)."},
    Setting{"data", &S::data, "path", 0, 0, "", "Folder of the data set; for text, the file."},
    Setting{"classes", &S::classes, "classes", 2, 256, "", "Images: labels are 0 to classes - 1."},
    Setting{"validation_fraction", &S::validation_fraction, "", 0, 0.9, "",
            "Text only: this share, the end of the file, is for evaluation."},
    Setting{"epochs", &S::epochs, "epochs", 1, 1e6, "", "How often the training set is seen."},
    Setting{"steps", &S::steps, "steps", 0, kMany, "",
            "Stop after this many steps even within an epoch; 0: no limit."},
    Setting{"batch", &S::batch, "samples", 1, kInts, "",
            "Global batch: samples of one step on all ranks together, the same on any number of "
            "ranks."},
    Setting{"batch_per_rank", &S::batch_per_rank, "samples", 0, kInts, "",
            "Instead of batch: samples of one step on each rank; 0: not used."},
    Setting{"drop_last", &S::drop_last, "", 0, 0, "",
            "Leave out the samples of an epoch that do not fill a batch."},
    Setting{"seed", &S::seed, "", 0, kMany, "",
            "Decides the first parameters and the order of the samples."},
    Setting{"optimizer", &S::optimizer, "", 0, 0, "sgd|adam|adamw", "How parameters are updated."},
    Setting{"lr", &S::lr, "", 0, 1000, "", "Learning rate."},
    Setting{"lr_schedule", &S::lr_schedule, "", 0, 0, "constant|cosine",
            "The learning rate after warm-up: constant, or falling to 0 as half a cosine."},
    Setting{"lr_scaling", &S::lr_scaling, "", 0, 0, "none|linear|sqrt",
            "Multiply lr by batch / base_batch, or by its square root."},
    Setting{"base_batch", &S::base_batch, "samples", 0, kInts, "",
            "The batch that lr is meant for; needed by lr_scaling."},
    Setting{"warmup_steps", &S::warmup_steps, "steps", 0, kMany, "",
            "Steps in which the learning rate rises evenly: from lr to the scaled lr, or from 0 "
            "without lr_scaling."},
    Setting{"momentum", &S::momentum, "", 0, 0.9999, "", "Momentum of sgd."},
    Setting{"nesterov", &S::nesterov, "", 0, 0, "", "Nesterov momentum for sgd."},
    Setting{"weight_decay", &S::weight_decay, "", 0, 10, "",
            "Weight decay: added to the gradient (sgd, adam) or apart from it (adamw)."},
    Setting{"clip_norm", &S::clip_norm, "", 0, 1e9, "",
            "Scale the gradients down to this norm, all of them together; 0: never."},
    Setting{"beta1", &S::beta1, "", 0, 0.999999, "", "adam, adamw: decay of the mean gradient."},
    Setting{"beta2", &S::beta2, "", 0, 0.999999, "", "adam, adamw: decay of the mean square."},
    Setting{"epsilon", &S::epsilon, "", 1e-16, 1, "", "adam, adamw: added to the denominator."},
    Setting{"dropout", &S::dropout, "", 0, 0.95, "",
            "Dropout of cnn and gpt. Above 0 results depend on the number of ranks."},
    Setting{"norm", &S::norm, "", 0, 0, "batch|group|none",
            "Normalization in resnet18. Each rank normalizes by its own share of the batch: with "
            "batch, results depend on the number of ranks."},
    Setting{"layers", &S::layers, "layers", 1, 1000, "", "gpt: transformer blocks."},
    Setting{"width", &S::width, "", 1, 65536, "", "gpt: width of the blocks; a multiple of heads."},
    Setting{"heads", &S::heads, "", 1, 1024, "", "gpt: attention heads."},
    Setting{"vocabulary", &S::vocabulary, "", 256, 1e6, "", "gpt: token values; bytes need 256."},
    Setting{"length", &S::length, "tokens", 1, 65536, "", "gpt: tokens of one sample."},
    Setting{"eval_every", &S::eval_every, "epochs", 0, 1e6, "",
            "Evaluate after every so many epochs and at the end; 0: never."},
    Setting{"eval_batch", &S::eval_batch, "samples", 1, kInts, "",
            "Samples that a rank evaluates at once."},
    Setting{"check_replicas", &S::check_replicas, "steps", 0, kMany, "",
            "Compare the parameters of all ranks after every so many backward passes; 0: never."},
    Setting{"output", &S::output, "path", 0, 0, "",
            "Folder for the trained model, model.pt; none: it is not saved."},
    Setting{"report", &S::report, "path", 0, 0, "",
            "File for the results, as JSON; none: no report."},
    Setting{"trace", &S::trace, "path", 0, 0, "",
            "File for what every rank did when, in Chrome's trace format, which Perfetto opens; "
            "none: no trace."},
    Setting{"log_every", &S::log_every, "steps", 0, kMany, "",
            "Steps from one line of progress to the next; 0: ten lines an epoch."},
    Setting{"threads", &S::threads, "threads", 0, 4096, "",
            "Threads a rank computes with; 0: OMP_NUM_THREADS, else its share of the cores."},
    Setting{"bucket_bytes", &S::bucket_bytes, "bytes", 1, kMany, "",
            "Gradients are reduced in buckets of at most this size."},
    Setting{"channels_last", &S::channels_last, "", 0, 0, "",
            "Keep images in channels-last order, which convolutions are faster in."},
};

std::vector<std::string> split_choices(std::string_view choices) {
  std::vector<std::string> result;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    result.emplace_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return result;
}

std::string join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string quoted(const Value& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
          return fmt::format("'{}'", v);
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

[[noreturn]] void refuse(const Setting& setting, const Value& value, std::string_view where) {
  fail(Code::invalid_argument, "{}: {} must be {}{}, found {}", where, setting.name,
       type_of(setting), bounds_of(setting).empty() ? "" : " in " + bounds_of(setting),
       quoted(value));
}

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) <= kMany) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void validate_batch(TrainSettings& s, const std::vector<std::string>& given, int ranks) {
  if (has(given, "batch") && s.batch_per_rank > 0) {
    fail(Code::invalid_argument, "batch and batch_per_rank are both set: set one of them");
  }
  if (s.batch_per_rank > 0) {
    if (s.batch_per_rank * ranks > static_cast<std::int64_t>(kInts)) {
      fail(Code::invalid_argument, "batch_per_rank = {} on {} ranks is too large a batch",
           s.batch_per_rank, ranks);
    }
    s.batch = s.batch_per_rank * ranks;
  }
  if (s.batch < ranks) {
    fail(Code::invalid_argument,
         "batch = {} is smaller than the {} ranks: each rank needs at least one sample of every "
         "batch; raise batch or start fewer ranks",
         s.batch, ranks);
  }
}

}  // namespace

std::span<const Setting> setting_table() {
  return kTable;
}

void assign(TrainSettings& settings, const Setting& setting, const Value& value,
            std::string_view where) {
  const auto in_bounds = [&](double v) { return v >= setting.min && v <= setting.max; };
  if (const auto* text = std::get_if<std::string TrainSettings::*>(&setting.field)) {
    const auto* given = std::get_if<std::string>(&value);
    if (given == nullptr) refuse(setting, value, where);
    const auto choices = split_choices(setting.choices);
    if (!choices.empty() && !has(choices, *given)) {
      const auto near = nearest(*given, choices);
      fail(Code::invalid_argument, "{}: unknown {} '{}'{}; known are {}", where, setting.name,
           *given, near ? fmt::format("; did you mean '{}'?", *near) : "", join(choices));
    }
    settings.** text = *given;
  } else if (const auto* whole = std::get_if<std::int64_t TrainSettings::*>(&setting.field)) {
    const auto* given = std::get_if<std::int64_t>(&value);
    if (given == nullptr || !in_bounds(static_cast<double>(*given))) refuse(setting, value, where);
    settings.** whole = *given;
  } else if (const auto* real = std::get_if<double TrainSettings::*>(&setting.field)) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    const auto* given = std::get_if<double>(&value);
    if (integer == nullptr && given == nullptr) refuse(setting, value, where);
    const double v = given != nullptr ? *given : static_cast<double>(*integer);
    if (!in_bounds(v)) refuse(setting, value, where);
    settings.** real = v;
  } else {
    const auto* given = std::get_if<bool>(&value);
    if (given == nullptr) refuse(setting, value, where);
    settings.*std::get<bool TrainSettings::*>(setting.field) = *given;
  }
}

const Setting& find_setting(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Setting& setting : kTable) {
    if (setting.name == name) return setting;
    names.emplace_back(setting.name);
  }
  const auto near = nearest(name, names);
  fail(Code::invalid_argument, "{}: unknown setting '{}'; {}", where, name,
       near ? fmt::format("did you mean '{}'?", *near)
            : "'lockstep train --list-settings' lists them all");
}

void validate(TrainSettings& s, const std::vector<std::string>& given, int ranks) {
  validate_batch(s, given, ranks);
  if ((s.model == "gpt") != (s.dataset == "text")) {
    fail(Code::invalid_argument, "model = {} cannot be trained on dataset = {}: {}", s.model,
         s.dataset, s.model == "gpt" ? "gpt needs dataset = text" : "text is for model = gpt");
  }
  if (s.model == "gpt" && s.width % s.heads != 0) {
    fail(Code::invalid_argument, "width = {} is not a multiple of heads = {}", s.width, s.heads);
  }
  if (s.lr_scaling != "none" && s.base_batch == 0) {
    fail(Code::invalid_argument, "lr_scaling = {} needs base_batch, the batch that lr is meant for",
         s.lr_scaling);
  }
  if (s.lr_scaling == "none" && s.base_batch != 0) {
    fail(Code::invalid_argument, "base_batch is set, but lr_scaling = none makes no use of it");
  }
  if (s.nesterov && (s.optimizer != "sgd" || s.momentum == 0)) {
    fail(Code::invalid_argument, "nesterov needs optimizer = sgd and a momentum above 0");
  }
}

std::string type_of(const Setting& setting) {
  if (!setting.choices.empty()) return "one of " + join(split_choices(setting.choices));
  constexpr const char* kTypes[] = {"text", "a whole number", "a number", "true or false"};
  return kTypes[setting.field.index()];
}

std::string default_of(const Setting& setting) {
  static constexpr auto kText = [](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      return value.empty() ? std::string("none") : value;
    } else {
      return fmt::format("{}", value);
    }
  };
  const TrainSettings defaults;
  return std::visit([&](auto field) { return kText(defaults.*field); }, setting.field);
}

std::string bounds_of(const Setting& setting) {
  if (setting.field.index() != 1 && setting.field.index() != 2) return "";
  return fmt::format("[{}, {}]", number(setting.min), number(setting.max));
}

std::string settings_page() {
  std::string page =
      "# Settings of `lockstep train`\n\n"
      "Made by `lockstep train --list-settings`. In a settings file (TOML) a setting is a line\n"
      "`name = value`; as a flag it is `--name value` with `-` for `_`, which overrides the "
      "file.\n\n"
      "| setting | type | unit | default | bounds | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const Setting& setting : kTable) {
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", setting.name, type_of(setting),
                        setting.unit, default_of(setting), bounds_of(setting), setting.help);
  }
  return page;
}

}  // namespace lockstep::train
