// The `lockstep` command.
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"

namespace lockstep::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"run", "start the ranks of a program on this host", run_command},
    {"blame", "say which rank of a failed job diverged or stopped first", blame_command},
    {"plan", "show, check, cost and draw what a collective does", plan_command},
    {"tune", "measure what messages and memory cost on this machine", tune_command},
    {"train", "train a ready-made model on a data set", train_command},
};

void print_help() {
  fmt::print(
      "Lockstep trains one model on many workers.\n\n"
      "Usage: lockstep <command> [arguments]\n\n");
  for (const Command& command : kCommands) {
    fmt::print("  {:<10} {}\n", command.name, command.summary);
  }
  fmt::print(
      "\n`lockstep <command> --help` describes a command; `lockstep --version` names this one.\n");
}

int unknown(const std::string& name) {
  std::vector<std::string> names = {"help", "--help", "--version"};
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::optional<std::string> close = nearest(name, names);
  fmt::print(stderr, "lockstep: unknown command '{}'; {}\n", name,
             close ? fmt::format("did you mean {}?", *close)
                   : std::string("`lockstep help` lists the commands"));
  return 2;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "lockstep: no command given; `lockstep help` lists them\n");
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--version" || name == "version") {
    fmt::print("lockstep {}\n", kVersion);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  if (name != "help" && name != "--help" && name != "-h") return unknown(name);
  print_help();
  return 0;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::cli::run(argc, argv);
}
