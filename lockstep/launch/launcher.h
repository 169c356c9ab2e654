// Starts the ranks of one job on this host and stays with them until nothing of it is left.
#pragma once

#include "lockstep/launch/options.h"

namespace lockstep {

// Blocks until the job has ended; returns the exit status that launch_help() describes. Prints the
// ranks' output and its own lines on standard output and error. Leaves no process, socket or shared
// memory behind, even if this process is killed. Throws Error when the job cannot be started.
//
// For a process with one thread: it forks and takes over the process's signals.
int launch(const LaunchOptions& options);

}  // namespace lockstep
