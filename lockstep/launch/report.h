// What the launcher says about the end of a job. Pure text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// How a rank's process ended.
struct RankEnd {
  int rank = 0;
  bool by_signal = false;
  int code = 0;  // the exit code, or the signal's number
  bool core_dumped = false;
  double after_s = 0;  // since the start of the job
  std::int64_t peak_memory_bytes = 0;
  bool out_of_memory = false;           // the kernel's counter of such kills rose
  std::vector<std::string> last_lines;  // of its output

  bool failed() const { return by_signal || code != 0; }
};

// "SIGSEGV".
std::string signal_name(int signal);

// The exit status that stands for an end: the code, or 128 + the signal.
int exit_status_of(const RankEnd& end);

// The lines to print, first cause first; `failures` is in order of time and not empty, `stopped`
// are the ranks that the launcher ended because of it.
std::vector<std::string> failure_report(const std::string& host,
                                        const std::vector<RankEnd>& failures,
                                        const std::vector<int>& stopped);

}  // namespace lockstep
