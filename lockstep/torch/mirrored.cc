#include "lockstep/torch/mirrored.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <dlfcn.h>

#include <cstdlib>

#include "lockstep/group/rank_threads.h"

namespace lockstep {

namespace {

// OpenBLAS with a pool of threads of its own, which all threads of the process share and take by
// turns: one rank's product would wait for the other's. (Built on OpenMP, it goes by the calling
// thread's number.) Found at run time: which BLAS there is, is the system's choice.
class OpenBlasThreads {
 public:
  explicit OpenBlasThreads(int threads) {
    constexpr int kOwnThreads = 1;
    const auto kind = find<int()>("openblas_get_parallel");
    const auto get = find<int()>("openblas_get_num_threads");
    set_ = find<void(int)>("openblas_set_num_threads");
    if (kind == nullptr || get == nullptr || set_ == nullptr || kind() != kOwnThreads ||
        std::getenv("OPENBLAS_NUM_THREADS") != nullptr) {
      set_ = nullptr;
      return;
    }
    before_ = get();
    set_(threads);
  }
  ~OpenBlasThreads() {
    if (set_ != nullptr) set_(before_);
  }
  OpenBlasThreads(const OpenBlasThreads&) = delete;
  OpenBlasThreads& operator=(const OpenBlasThreads&) = delete;

 private:
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  }

  void (*set_)(int) = nullptr;
  int before_ = 0;
};

// LibTorch's number, which is both the calling thread's and that of threads to come.
class TorchThreads {
 public:
  TorchThreads() : before_(at::get_num_threads()) {}
  ~TorchThreads() { at::set_num_threads(before_); }
  TorchThreads(const TorchThreads&) = delete;
  TorchThreads& operator=(const TorchThreads&) = delete;

 private:
  const int before_;
};

}  // namespace

void internal::run_mirrored(int ranks, const std::function<void(Group&)>& body) {
  const TorchThreads torch_threads;
  std::optional<OpenBlasThreads> blas_threads;
  if (ranks > 1) blas_threads.emplace(1);
  const at::ThreadLocalState state;
  run_rank_threads(ranks, [&](Group& group, int compute_threads) {
    const at::ThreadLocalStateGuard of_caller(state);
    at::set_num_threads(compute_threads);
    body(group);
  });
}

}  // namespace lockstep
