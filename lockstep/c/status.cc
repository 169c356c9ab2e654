#include "lockstep/c/status.h"

#include <cstdio>

namespace lockstep {

namespace {
// A buffer, not a string: saying that there is no memory must need none.
constexpr int kMessageBytesMax = 4096;
thread_local char message_of_thread[kMessageBytesMax];
}  // namespace

int remember(Code code, const char* function, const char* message) noexcept {
  std::snprintf(message_of_thread, sizeof(message_of_thread), "%s%s%s", function,
                *function == '\0' ? "" : ": ", message);
  return static_cast<int>(code);
}

const char* remembered() noexcept {
  return message_of_thread;
}

}  // namespace lockstep
