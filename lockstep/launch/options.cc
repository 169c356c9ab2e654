#include "lockstep/launch/options.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr double kGraceMax_s = 3600;

using Setter = void (*)(LaunchOptions& options, const std::string& value);

struct Option {
  const char* name;
  const char* short_name;  // or null
  const char* value_name;  // null: takes no value
  const char* help;
  Setter set;
};

std::int64_t integer(const char* option, const std::string& value, std::int64_t min,
                     std::int64_t max, const char* meaning) {
  const auto number = parse_integer(value, min, max);
  if (!number) {
    fail(Code::invalid_argument, "{} must be {} from {} to {}, not '{}'", option, meaning, min, max,
         value);
  }
  return *number;
}

void set_ranks(LaunchOptions& options, const std::string& value) {
  options.ranks = static_cast<int>(integer("-n", value, 1, kRanksMax, "a number of ranks"));
}

void set_port(LaunchOptions& options, const std::string& value) {
  options.port =
      static_cast<std::uint16_t>(integer("--port", value, 0, 65535, "a port (0: any free one)"));
}

void set_no_pin(LaunchOptions& options, const std::string&) {
  options.pin = false;
}

void set_encrypt(LaunchOptions& options, const std::string&) {
  options.encrypt = true;
}

void set_prefix(LaunchOptions& options, const std::string& value) {
  if (value == "auto") {
    options.prefix = PrefixMode::automatic;
  } else if (value == "always") {
    options.prefix = PrefixMode::always;
  } else if (value == "never") {
    options.prefix = PrefixMode::never;
  } else {
    fail(Code::invalid_argument, "--prefix must be auto, always or never, not '{}'", value);
  }
}

void set_log_dir(LaunchOptions& options, const std::string& value) {
  if (value.empty()) fail(Code::invalid_argument, "--log-dir must name a folder, not ''");
  options.log_dir = value;
}

void set_grace(LaunchOptions& options, const std::string& value) {
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(seconds >= 0) || seconds > kGraceMax_s) {
    fail(Code::invalid_argument, "--grace must be seconds from 0 to {}, not '{}'", kGraceMax_s,
         value);
  }
  options.grace = std::chrono::milliseconds(std::lround(seconds * 1000));
}

void set_help(LaunchOptions& options, const std::string&) {
  options.help = true;
}

constexpr Option kOptions[] = {
    {"--ranks", "-n", "N", "how many ranks to start (default: one per usable core)", set_ranks},
    {"--port", nullptr, "P", "port of the store on 127.0.0.1 (default: any free one)", set_port},
    {"--no-pin", nullptr, nullptr, "let the ranks use all cores instead of a share each",
     set_no_pin},
    {"--encrypt", nullptr, nullptr, "encrypt every connection between the ranks (TLS 1.3)",
     set_encrypt},
    {"--prefix", nullptr, "WHEN",
     "start lines with [rank R]: always, never, or auto (default):\n"
     "                    from the moment that another rank than 0 prints",
     set_prefix},
    {"--log-dir", nullptr, "DIR", "keep each rank's output in DIR/rank-R.log as well", set_log_dir},
    {"--grace", nullptr, "SECONDS",
     "how long ranks get to end after a signal, before SIGKILL (default 1)", set_grace},
    {"--help", "-h", nullptr, "this text", set_help},
};

const Option& find_option(const std::string& name) {
  std::vector<std::string> names;
  for (const Option& option : kOptions) {
    if (name == option.name || (option.short_name && name == option.short_name)) return option;
    names.emplace_back(option.name);
  }
  const std::optional<std::string> close = nearest(name, names);
  fail(Code::invalid_argument, "unknown option {}; {}", name,
       close ? fmt::format("did you mean {}?", *close)
             : std::string("`lockstep run --help` lists the options"));
}

// "-n4" and "--port=4" carry their value; "-n 4" does not.
std::pair<std::string, std::optional<std::string>> split(const std::string& argument) {
  if (argument.starts_with("--")) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos) return {argument, {}};
    return {argument.substr(0, equals), argument.substr(equals + 1)};
  }
  if (argument.size() == 2) return {argument, {}};
  return {argument.substr(0, 2), argument.substr(2)};
}

}  // namespace

LaunchOptions parse_launch_options(std::span<const std::string> arguments) {
  LaunchOptions options;
  std::size_t next = 0;
  for (; next < arguments.size(); ++next) {
    const std::string& argument = arguments[next];
    if (argument == "--") {
      ++next;
      break;
    }
    if (!argument.starts_with('-') || argument == "-") break;
    auto [name, value] = split(argument);
    const Option& option = find_option(name);
    if (!option.value_name && value) {
      fail(Code::invalid_argument, "{} takes no value, but got '{}'", name, *value);
    }
    if (option.value_name && !value) {
      if (++next == arguments.size()) {
        fail(Code::invalid_argument, "{} needs a value: {} {}", name, name, option.value_name);
      }
      value = arguments[next];
    }
    option.set(options, value.value_or(""));
    if (options.help) return options;
  }
  options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (options.command.empty()) {
    fail(Code::invalid_argument,
         "no program to run; for example `lockstep run -n 2 -- ./program argument`");
  }
  return options;
}

std::string launch_help() {
  std::string text =
      "Usage: lockstep run [options] [--] program [arguments]\n\n"
      "Starts one copy of the program per rank on this host, watches them, and ends them "
      "together.\n"
      "Each finds its place in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and\n"
      "MASTER_PORT, as with torchrun. Each gets an equal share of the cores, and as many threads\n"
      "(OMP_NUM_THREADS, unless you set it).\n\n";
  for (const Option& option : kOptions) {
    std::string names = option.short_name ? fmt::format("{}, {}", option.short_name, option.name)
                                          : std::string(option.name);
    if (option.value_name) names += fmt::format(" {}", option.value_name);
    text += fmt::format("  {:<17} {}\n", names, option.help);
  }
  text +=
      "\nWhen a rank fails, the others are ended, the first failure is reported, and its exit\n"
      "code, or 128 + its signal, becomes the exit status. Otherwise: 0 when all ranks exit 0;\n"
      "2 bad usage; 126 or 127 the program cannot be run or is not there; 1 another failure to\n"
      "start; 128 + signal when ended by a signal. A second Ctrl-C kills at once.\n";
  return text;
}

}  // namespace lockstep
