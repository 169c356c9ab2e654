#include "lockstep/train/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::train {

namespace {

std::string failure_of(const std::function<void()>& part) {
  try {
    part();
    return "";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "an exception without a message" : text;
  }
}

}  // namespace

void agree(Group& group, const std::function<void()>& part) {
  const std::vector<std::string> failures = group.exchange(failure_of(part));
  const auto first = std::find_if(failures.begin(), failures.end(),
                                  [](const std::string& text) { return !text.empty(); });
  if (first == failures.end()) return;
  const bool everywhere = std::all_of(failures.begin(), failures.end(),
                                      [&](const std::string& text) { return text == *first; });
  if (everywhere) throw AgreedError(Code::io, *first);
  throw AgreedError(Code::io, fmt::format("rank {}: {}", first - failures.begin(), *first));
}

}  // namespace lockstep::train
