// LibTorch's operators on one thread, for threads that are many already.
#pragma once

namespace lockstep {

// From here on LibTorch's operators run on the calling thread alone when this thread calls them.
// Without it each thread that calls a parallel operator gets a team of OpenMP threads of its own.
// Other threads keep theirs. With a LibTorch whose operators do not use OpenMP nothing changes:
// there all threads share one pool.
void use_one_thread() noexcept;

}  // namespace lockstep
