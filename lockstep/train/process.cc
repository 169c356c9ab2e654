#include "lockstep/train/process.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lockstep/env/files.h"

namespace lockstep::train {

void use_threads(int thread_count) {
  at::set_num_threads(thread_count);
  // OpenBLAS with threads of its own takes no notice of the line above. Which BLAS is beneath
  // LibTorch is known only at run time.
  using SetThreads = void (*)(int);
  if (auto set_threads =
          reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set_threads(thread_count);
  }
}

void keep_freed_memory() {
  constexpr int kPadBytes = 64 << 20;
  constexpr int kLargestBytes = 1 << 30;
  ::mallopt(M_TOP_PAD, kPadBytes);
  ::mallopt(M_TRIM_THRESHOLD, kLargestBytes);
  ::mallopt(M_MMAP_THRESHOLD, kLargestBytes);
}

double seconds_since_start() {
  const std::string status = read_file("/proc/self/stat", 1 << 16);
  // Field 22, counted after the program's name, which is in parentheses and may hold spaces.
  std::size_t at = status.rfind(')') + 1;
  for (int field = 2; field < 21; ++field) at = status.find(' ', at + 1);
  const double started = std::strtod(status.c_str() + at, nullptr);
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         started / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace lockstep::train
