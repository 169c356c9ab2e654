#include "lockstep/train/config.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <deque>
#include <vector>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/env/files.h"

namespace lockstep::train {

namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

Value value_of(const toml::node& node, const Setting& setting, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* real = node.as_floating_point()) return real->get();
  if (const auto* truth = node.as_boolean()) return truth->get();
  std::ostringstream kind;
  kind << node.type();
  fail(Code::invalid_argument, "{}: {} must be {}, found a TOML {}", where, setting.name,
       type_of(setting), kind.str());
}

void read_settings_file(const std::string& path, TrainSettings& settings,
                        std::vector<std::string>& given) {
  const std::string content = read_file(path, kConfigBytesMax);
  toml::table table;
  try {
    table = toml::parse(content, path);
  } catch (const toml::parse_error& error) {
    fail(Code::invalid_argument, "{}:{}: {}", path, error.source().begin.line,
         first_line(error.description()));
  }
  // In the order of the file, so that the first mistake is the one that is told.
  std::vector<std::pair<std::string, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(std::string(key.str()), &node);
  const auto line_of = [](const toml::node* node) { return node->source().begin.line; };
  std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
    return line_of(a.second) < line_of(b.second);
  });
  for (const auto& [key, node] : entries) {
    const std::string where = fmt::format("{}:{}", path, line_of(node));
    const Setting& setting = find_setting(key, where);
    assign(settings, setting, value_of(*node, setting, where), where);
    given.push_back(key);
  }
}

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return {};
  return value;
}

// What a settings file would hold for this text; text that is no such value stays text, which
// assign() then refuses.
Value value_of(const std::string& text, const Setting& setting) {
  if (std::holds_alternative<std::int64_t TrainSettings::*>(setting.field)) {
    if (const auto value = parse_number<std::int64_t>(text)) return *value;
  } else if (std::holds_alternative<double TrainSettings::*>(setting.field)) {
    if (const auto value = parse_number<double>(text)) return *value;
  } else if (std::holds_alternative<bool TrainSettings::*>(setting.field)) {
    if (text == "true" || text == "false") return text == "true";
  }
  return text;
}

struct Flag {
  const Setting* setting = nullptr;
  CLI::Option* option = nullptr;
  std::string text;
};

void add_flags(CLI::App& app, std::deque<Flag>& flags) {
  for (const Setting& setting : setting_table()) {
    Flag& flag = flags.emplace_back();
    flag.setting = &setting;
    std::string help(setting.help);
    if (!setting.choices.empty()) help += fmt::format(" {}.", type_of(setting));
    help += fmt::format(" [{}]", default_of(setting));
    if (std::holds_alternative<bool TrainSettings::*>(setting.field)) {
      flag.option = app.add_flag(flag_of(setting.name), flag.text, help);
    } else {
      flag.option = app.add_option(flag_of(setting.name), flag.text, help);
      flag.option->type_name(std::string(setting.unit.empty() ? "VALUE" : setting.unit));
    }
  }
}

void refuse_extras(const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    if (extra.rfind("--", 0) != 0) continue;
    std::string name = extra.substr(2, extra.find('=') - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> names;
    for (const Setting& setting : setting_table()) names.emplace_back(setting.name);
    const auto near = nearest(name, names);
    fail(Code::invalid_argument, "unknown flag '{}'; {}", extra,
         near ? fmt::format("did you mean '{}'?", flag_of(*near))
              : "'lockstep train --help' lists them all");
  }
  if (!extras.empty()) {
    fail(Code::invalid_argument,
         "unexpected argument '{}': one settings file and flags are expected", extras.front());
  }
}

}  // namespace

Command parse_command(std::span<const std::string> arguments, int ranks) {
  CLI::App app("Trains a model on a data set; on many ranks: lockstep run -n N -- lockstep train …",
               "lockstep train");
  app.allow_extras();
  std::string file;
  bool list_settings = false;
  std::deque<Flag> flags;
  app.add_option("CONFIG", file, "Settings file (TOML); flags override it")->type_name("FILE");
  app.add_flag("--list-settings", list_settings, "Print all settings as a Markdown page");
  add_flags(app, flags);

  Command command;
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    command.action = Command::Action::print;
    command.text = app.help();
    return command;
  } catch (const CLI::ParseError& error) {
    fail(Code::invalid_argument, "{}", first_line(error.what()));
  }
  refuse_extras(app.remaining());
  if (list_settings) {
    command.action = Command::Action::print;
    command.text = settings_page();
    return command;
  }

  std::vector<std::string> given;
  if (!file.empty()) read_settings_file(file, command.settings, given);
  for (const Flag& flag : flags) {
    if (flag.option->count() == 0) continue;
    const std::string where = flag_of(flag.setting->name);
    assign(command.settings, *flag.setting, value_of(flag.text, *flag.setting), where);
    given.emplace_back(flag.setting->name);
  }
  validate(command.settings, given, ranks);
  return command;
}

}  // namespace lockstep::train
