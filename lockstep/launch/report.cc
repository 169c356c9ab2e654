#include "lockstep/launch/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kSecondaryShownMax = 8;

std::string how(const RankEnd& end) {
  if (!end.by_signal) return fmt::format("exited with code {}", end.code);
  std::string text = fmt::format("was killed by {}", signal_name(end.code));
  if (end.core_dumped) text += " (core dumped)";
  if (end.code != SIGKILL) return text;
  const std::string peak =
      fmt::format("peak memory {}", human_bytes(static_cast<double>(end.peak_memory_bytes)));
  if (end.out_of_memory) return fmt::format("{}: out of memory; {}", text, peak);
  return fmt::format(
      "{} (if nobody sent it, the kernel may have run out of memory, see `dmesg`; {})", text, peak);
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int exit_status_of(const RankEnd& end) {
  return end.by_signal ? 128 + end.code : end.code;
}

std::vector<std::string> failure_report(const std::string& host,
                                        const std::vector<RankEnd>& failures,
                                        const std::vector<int>& stopped) {
  const RankEnd& first = failures.front();
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "lockstep run: rank {} on {} {}, {:.2f} s after the start{}", first.rank, host, how(first),
      first.after_s, first.last_lines.empty() ? "; it printed nothing" : "; its last lines:"));
  for (const std::string& line : first.last_lines) lines.push_back("    " + line);
  const std::size_t shown = std::min(failures.size(), kSecondaryShownMax + 1);
  for (std::size_t i = 1; i < shown; ++i) {
    lines.push_back(fmt::format("lockstep run: then rank {} {}, after {:.2f} s", failures[i].rank,
                                how(failures[i]), failures[i].after_s));
  }
  if (shown < failures.size()) {
    lines.push_back(
        fmt::format("lockstep run: then {} more ranks failed", failures.size() - shown));
  }
  if (!stopped.empty()) {
    lines.push_back(fmt::format("lockstep run: stopped {}", rank_list(stopped)));
  }
  return lines;
}

}  // namespace lockstep
