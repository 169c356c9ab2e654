#include "lockstep/plan/plan.h"

#include <iterator>

namespace lockstep {

std::string_view to_string(Operation operation) {
  constexpr std::string_view kNames[] = {"all_reduce", "broadcast", "all_gather", "barrier"};
  const auto index = static_cast<std::size_t>(operation);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

std::string_view to_string(StepKind kind) {
  constexpr std::string_view kNames[] = {"copy", "reduce", "barrier", "send", "receive", "wait"};
  return kNames[static_cast<int>(kind)];
}

std::string_view to_string(Needs needs) {
  constexpr std::string_view kNames[] = {"shared_data", "shared_scratch", "messages"};
  return kNames[static_cast<int>(needs)];
}

}  // namespace lockstep
