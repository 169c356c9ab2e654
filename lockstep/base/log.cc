#include "lockstep/base/log.h"

#include <unistd.h>

namespace lockstep {

void log_line(std::string_view who, std::string_view level, std::string_view text) {
  std::string line = "lockstep: ";
  for (const std::string_view part : {who, level}) {
    if (!part.empty()) line += fmt::format("{}: ", part);
  }
  line += text;
  line += '\n';
  // A log line that cannot be written has nobody to be reported to.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
