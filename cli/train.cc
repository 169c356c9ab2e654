// `lockstep train`: trains a model as one rank.
#include <string>
#include <vector>

#include "cli/commands.h"
#include "lockstep/train/command.h"

namespace lockstep::cli {

int train_command(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return train::run_command(arguments);
}

}  // namespace lockstep::cli
