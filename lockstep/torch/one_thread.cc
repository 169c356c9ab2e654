#include "lockstep/torch/one_thread.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace lockstep {

void use_one_thread() noexcept {
  // LibTorch sets a thread's number when the thread first asks for it. Asked now, it does not
  // overwrite ours later.
  at::get_num_threads();
  // OpenMP's number is the thread's own; at::set_num_threads would also set it for all threads to
  // come. Looked up, because which OpenMP there is, and whether, is LibTorch's affair.
  if (void* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(symbol)(1);
  }
}

}  // namespace lockstep
