#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

int run_command(int argc, char** argv) {
  try {
    const LaunchOptions options =
        parse_launch_options(std::vector<std::string>(argv + 1, argv + argc));
    if (options.help) {
      fmt::print("{}", launch_help());
      return 0;
    }
    return launch(options);
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep run: {}\n", error.what());
    return error.code() == Code::invalid_argument ? 2 : 1;
  }
}

}  // namespace lockstep::cli
