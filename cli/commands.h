// The subcommands of `lockstep`. Each gets its own name as argv[0] and returns the exit status.
#pragma once

namespace lockstep::cli {

int blame_command(int argc, char** argv);
int plan_command(int argc, char** argv);
int run_command(int argc, char** argv);
int train_command(int argc, char** argv);
int tune_command(int argc, char** argv);

}  // namespace lockstep::cli
