// Lines for people, on standard error: "lockstep: rank 2: warning: …". One write call per line, so
// that lines of several ranks never mix.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace lockstep {

// `who` is what the line speaks of ("rank 2", "run", …); empty leaves it out.
void log_line(std::string_view who, std::string_view level, std::string_view text);

template <class... Args>
void log_warning(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
  log_line(who, "warning", fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_error(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
  log_line(who, "error", fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_info(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
  log_line(who, "", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
