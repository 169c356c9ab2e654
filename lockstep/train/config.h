// The command line and the settings file of `lockstep train`, read into TrainSettings.
#pragma once

#include <span>
#include <string>

#include "lockstep/train/settings.h"

namespace lockstep::train {

struct Command {
  enum class Action { train, print };
  Action action = Action::train;
  std::string text;  // to print
  TrainSettings settings;
};

// `arguments` without the program's and the command's name. Flags override the file. Throws
// Error(invalid_argument), whose message starts with the file and line or the flag it is about, and
// Error(io) for a settings file that cannot be read.
Command parse_command(std::span<const std::string> arguments, int ranks);

}  // namespace lockstep::train
