#include "lockstep/engine/notices.h"

#include "lockstep/base/log.h"

namespace lockstep {

void Notices::post(std::string line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(std::move(line));
  any_.store(true, std::memory_order_release);
}

void Notices::say() {
  if (!any_.load(std::memory_order_acquire)) return;
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
    any_ = false;
  }
  for (const std::string& line : lines) log_warning(who_, "{}", line);
}

}  // namespace lockstep
