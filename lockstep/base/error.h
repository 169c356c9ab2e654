// The one exception type of Lockstep, and the check for broken invariants.
//
// Thread rule: free to use anywhere. A code exists only where a caller acts differently on it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// The numbers are those of the C interface (lockstep_c.h), where 0 is success: they stay.
enum class Code {
  invalid_argument = 1,  // the caller asked for something that cannot be; nothing was changed
  unsupported,           // a legal request that this build or this group cannot serve
  timeout,               // the deadline passed; the message names who was missing
  peer_lost,             // a rank died or its link broke
  generation_changed,    // the group's membership is no longer the one this call belongs to
  cancelled,             // the user or a signal ended it
  corrupt,               // bytes from outside do not mean what they should
  unauthenticated,       // the other end could not prove that it belongs to this job
  io,                    // a file or a system call failed
};

std::string_view to_string(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// Throws Error(code) with a formatted message.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error(io): "<what>: <strerror(error_number)>".
[[noreturn]] void fail_errno(int error_number, std::string_view what);

namespace internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace internal

}  // namespace lockstep

// A broken invariant inside Lockstep: prints where and aborts, in every build.
#define LOCKSTEP_CHECK(condition)     \
  ((condition) ? static_cast<void>(0) \
               : ::lockstep::internal::check_failed(#condition, __FILE__, __LINE__))
