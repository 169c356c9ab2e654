// `lockstep train` as one rank of a job.
#pragma once

#include <span>
#include <string>

namespace lockstep::train {

// `arguments` without the program's and the command's name. Returns the exit status: 0; 2 for bad
// settings; 1 for any other failure, which is told in one line on standard error.
int run_command(std::span<const std::string> arguments);

}  // namespace lockstep::train
