#include "lockstep/env/limits.h"

#include <sys/resource.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

void require_open_files(std::size_t files_wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno(errno, "cannot read the file limit");
  if (limit.rlim_cur >= files_wanted) return;
  if (limit.rlim_max < files_wanted) {
    fail(Code::io, "this process needs {} open files, but may have {}; raise it with `ulimit -Hn`",
         files_wanted, limit.rlim_max);
  }
  limit.rlim_cur = files_wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno(errno, "cannot raise the file limit");
}

}  // namespace lockstep
