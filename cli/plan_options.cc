#include "cli/plan_options.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep::cli {

namespace {

constexpr std::int64_t kRanksMax = 65'536;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 40;

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kOperationCount; ++i) {
    names.emplace_back(to_string(static_cast<Operation>(i)));
  }
  return names;
}

Operation parse_operation(const std::string& name) {
  const auto names = operation_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Operation>(i);
  }
  const auto close = nearest(name, names);
  fail(Code::invalid_argument, "there is no operation '{}'; {}", name,
       close ? fmt::format("did you mean {}?", *close)
             : fmt::format("there are {}", fmt::join(names, ", ")));
}

DType parse_dtype(const std::string& name) {
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (to_string(dtype) == name) return dtype;
    known += fmt::format("{}{}", i == 0 ? "" : ", ", to_string(dtype));
  }
  fail(Code::invalid_argument, "--dtype {} is none of {}", name, known);
}

std::int64_t parse_number(const std::string& flag, const std::string& text, std::int64_t min,
                          std::int64_t max) {
  const auto number = parse_integer(text, min, max);
  if (!number) {
    fail(Code::invalid_argument, "{} {} is not a whole number from {} to {}", flag, text, min, max);
  }
  return *number;
}

// 4096, 4K, 16M, 1G: binary multiples.
std::int64_t parse_bytes(const std::string& flag, std::string text) {
  const std::string all = text;
  std::int64_t unit = 1;
  const std::string units = "KMG";
  const auto found = text.empty() ? std::string::npos : units.find(text.back());
  if (found != std::string::npos) {
    unit = std::int64_t{1} << (10 * (found + 1));
    text.pop_back();
  }
  const auto number = parse_integer(text, 0, kBytesMax / unit);
  if (!number) {
    fail(Code::invalid_argument,
         "{} {} is not a number of bytes from 0 to 1024G (K, M, G: times 1,024 …)", flag, all);
  }
  return *number * unit;
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter ||
         operation == Operation::send;
}

void require_algorithm(const PlanOptions& options) {
  if (options.algorithm.empty()) return;
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.operation == options.of.operation) names.emplace_back(algorithm.name);
  }
  if (find_algorithm(options.of.operation, options.algorithm) != nullptr) return;
  fail(Code::invalid_argument, "{} has no algorithm '{}'; it has {}",
       to_string(options.of.operation), options.algorithm, fmt::join(names, ", "));
}

void require_sense(const PlanOptions& options, bool rooted) {
  const Case& of = options.of;
  if (options.hosts > of.ranks) {
    fail(Code::invalid_argument, "--hosts {} is more than --ranks {}", options.hosts, of.ranks);
  }
  if (options.rank >= of.ranks) {
    fail(Code::invalid_argument, "--rank {} is none of ranks 0 to {}", options.rank, of.ranks - 1);
  }
  if (of.root >= of.ranks) {
    fail(Code::invalid_argument, "--root {} is none of ranks 0 to {}", of.root, of.ranks - 1);
  }
  if (rooted && !has_root(of.operation)) {
    fail(Code::invalid_argument, "--root: {} has no root", to_string(of.operation));
  }
  if (of.operation == Operation::send && of.ranks != 2) {
    fail(Code::invalid_argument, "--ranks {}: a send is between 2 ranks", of.ranks);
  }
  require_algorithm(options);
}

}  // namespace

PlanOptions parse_plan_options(const std::vector<std::string>& arguments) {
  PlanOptions options;
  std::optional<std::string> operation, ranks, hosts, bytes, root;
  std::string dtype = "f32";
  std::string rank = "0";
  std::string order = "canonical";
  const std::map<std::string, std::function<void(const std::string&)>> valued = {
      {"--ranks", [&](const auto& value) { ranks = value; }},
      {"--hosts", [&](const auto& value) { hosts = value; }},
      {"--bytes", [&](const auto& value) { bytes = value; }},
      {"--root", [&](const auto& value) { root = value; }},
      {"--dtype", [&](const auto& value) { dtype = value; }},
      {"--rank", [&](const auto& value) { rank = value; }},
      {"--order", [&](const auto& value) { order = value; }},
      {"--algorithm", [&](const auto& value) { options.algorithm = value; }},
      {"--svg", [&](const auto& value) { options.svg = value; }},
      {"--tuning", [&](const auto& value) { options.tuning = value; }},
  };
  const std::map<std::string, std::function<void()>> switches = {
      {"--help", [&] { options.help = true; }},       {"-h", [&] { options.help = true; }},
      {"--table", [&] { options.table = true; }},     {"--json", [&] { options.json = true; }},
      {"--no-check", [&] { options.check = false; }},
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (const auto found = switches.find(argument); found != switches.end()) {
      found->second();
    } else if (const auto flag = valued.find(argument); flag != valued.end()) {
      if (i + 1 == arguments.size()) fail(Code::invalid_argument, "{} needs a value", argument);
      flag->second(arguments[++i]);
    } else if (argument.starts_with("-")) {
      fail(Code::invalid_argument, "unknown flag '{}'; `lockstep plan --help`", argument);
    } else if (operation) {
      fail(Code::invalid_argument, "two operations: '{}' and '{}'", *operation, argument);
    } else {
      operation = argument;
    }
  }
  if (options.help || options.table) return options;
  if (!operation) {
    fail(Code::invalid_argument, "no operation given; there are {}",
         fmt::join(operation_names(), ", "));
  }
  Case& of = options.of;
  of.operation = parse_operation(*operation);
  of.dtype = parse_dtype(dtype);
  if (!ranks) fail(Code::invalid_argument, "--ranks is not given");
  of.ranks = static_cast<int>(parse_number("--ranks", *ranks, 1, kRanksMax));
  if (hosts) options.hosts = static_cast<int>(parse_number("--hosts", *hosts, 1, kRanksMax));
  if (root) of.root = static_cast<int>(parse_number("--root", *root, 0, kRanksMax));
  options.rank = static_cast<int>(parse_number("--rank", rank, 0, kRanksMax));
  if (order != "canonical" && order != "any") {
    fail(Code::invalid_argument, "--order {} is none of canonical, any", order);
  }
  options.order = order == "any" ? Order::any : Order::canonical;
  const bool barrier = of.operation == Operation::barrier;
  if (!bytes && !barrier) fail(Code::invalid_argument, "--bytes is not given");
  if (bytes && !barrier) {
    const std::int64_t all = parse_bytes("--bytes", *bytes);
    if (all % of.size().bytes != 0) {
      fail(Code::invalid_argument, "--bytes {} is not a multiple of the {} bytes of {}", all,
           of.size().bytes, dtype);
    }
    of.count = all / of.size().bytes;
  }
  require_sense(options, root.has_value());
  return options;
}

std::string plan_help() {
  return fmt::format(
      "Shows what a collective does, without a network: which algorithms there are and when each\n"
      "is chosen, the steps, a proof, messages, bytes and predicted time, a drawing.\n\n"
      "Usage: lockstep plan OPERATION --ranks N --bytes B [flags]\n"
      "       lockstep plan --table\n\n"
      "  OPERATION       {}\n"
      "  --ranks N       how many take part, 1 to 65,536\n"
      "  --bytes B       of the tensor; where it has parts, of one part. K, M, G: 4K, 16M, 1G\n"
      "  --hosts H       ranks sit on H hosts in equal blocks. Default: one host for algorithms\n"
      "                  that share memory, two for those that also send messages, else one each\n"
      "  --dtype T       f32 by default\n"
      "  --root R        of broadcast, reduce, gather, scatter; the sender of a send. Default 0\n"
      "  --algorithm A   this one; by default what the table chooses, and why\n"
      "  --order O       canonical by default; any: sums may be added in another order\n"
      "  --rank R        whose steps are shown. Default 0\n"
      "  --svg FILE      draws it: ranks down, time across\n"
      "  --tuning FILE   prices that `lockstep tune` measured. Default: $LOCKSTEP_TUNING, else\n"
      "                  those of a virtual machine over loopback TCP\n"
      "  --no-check      no proof\n"
      "  --json          one JSON object\n"
      "  --table         all algorithms, as docs/algorithms.md has them\n\n"
      "Exit status: 0; 1 when the proof fails or a file cannot be written; 2 when the arguments\n"
      "make no sense.\n",
      fmt::join(operation_names(), ", "));
}

}  // namespace lockstep::cli
