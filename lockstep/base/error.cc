#include "lockstep/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::unsupported:
      return "unsupported";
    case Code::timeout:
      return "timeout";
    case Code::peer_lost:
      return "peer_lost";
    case Code::generation_changed:
      return "generation_changed";
    case Code::cancelled:
      return "cancelled";
    case Code::corrupt:
      return "corrupt";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::io:
      return "io";
  }
  return "unknown";
}

void fail_errno(int error_number, std::string_view what) {
  fail(Code::io, "{}: {}", what, std::strerror(error_number));
}

void internal::check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "lockstep: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace lockstep
