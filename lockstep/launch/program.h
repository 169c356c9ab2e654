// Finding the program to run before anything is started.
#pragma once

#include <string>

namespace lockstep {

struct Program {
  std::string path;     // what to execute, if problem is empty
  std::string problem;  // what is wrong, with the path
  int exit_status = 0;  // as shells have it: 127 not found, 126 cannot be executed
};

// `name` with a slash is a path; otherwise it is looked up in `search_path` ("/bin:/usr/bin") as
// execvp does: entries that cannot be executed are passed over while a later one can.
Program find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep
