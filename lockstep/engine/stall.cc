#include "lockstep/engine/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/text.h"

namespace lockstep {

namespace {

// Of more than this many ranks only the numbers are given.
constexpr std::size_t kDescribedMax = 4;

constexpr int kLongMs = 1'000'000'000;
// An operation that waits is looked at again so soon, to begin counting.
constexpr int kSecondLookMs = 100;

double seconds(StallWatch::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Before the first barrier of an operation a peer is waited for because it has not come to it;
// after that, because it is slower in it.
std::string place_of(int peer, const Execution& execution, const Fabric& fabric) {
  const auto here = std::find(fabric.local.begin(), fabric.local.end(), peer);
  if (here == fabric.local.end()) return "is on another host";
  if (execution.agreed()) return "is in it, too";
  const std::uint64_t number = execution.announcement().sequence;
  if (number == 0) return "has not come to it";
  const auto index = static_cast<int>(here - fabric.local.begin());
  const auto last = fabric.arena->announced(index, number - 1);
  if (!last || last->sequence != number - 1) return "has not come to it";
  return fmt::format("has not come to it (its last: {})", describe(*last));
}

}  // namespace

StallWatch::Event StallWatch::look(std::uint64_t operation, std::uint64_t mark) {
  if (!watching_ || operation != operation_ || mark != mark_) {
    const bool ends = end_stall();
    watching_ = true;
    operation_ = operation;
    mark_ = mark;
    since_.reset();
    return ends ? Event::goes_on : Event::none;
  }
  if (stalled_) return Event::none;
  const Clock::time_point now = now_();
  if (!since_) since_ = now;
  if (now - *since_ < after_) return Event::none;
  stalled_ = true;
  stalled_s_ = seconds(now - *since_);
  return Event::stalled;
}

bool StallWatch::end_stall() {
  if (!stalled_) return false;
  stalled_s_ = seconds(now_() - *since_);
  stalled_ = false;
  return true;
}

int StallWatch::remaining_ms() const {
  if (!watching_ || stalled_) return kLongMs;
  if (!since_) return kSecondLookMs;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*since_ + after_ - now_());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kLongMs));
}

std::string waits_for(const Execution& execution, const Fabric& fabric) {
  const std::vector<int> ranks = execution.blocked_on();
  if (ranks.empty()) return "nobody";
  if (fabric.arena == nullptr || ranks.size() > kDescribedMax) return rank_list(ranks);
  std::string text;
  for (const int rank : ranks) {
    text += fmt::format("{}rank {}, which {}", text.empty() ? "" : ", and for ", rank,
                        place_of(rank, execution, fabric));
  }
  return text;
}

}  // namespace lockstep
