// The program lockstep-train: what `lockstep train` becomes.
#include <string>
#include <vector>

#include "lockstep/train/command.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return lockstep::train::run_command(arguments);
}
