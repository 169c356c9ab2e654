// How this process uses the machine: threads, memory, and when it began.
#pragma once

#include <cstdint>

namespace lockstep::train {

// Threads for LibTorch's operators and for the BLAS beneath them. Before the first operator.
void use_threads(int thread_count);

// Keeps freed memory for the next step instead of giving it back to the system and faulting it in
// again, page by page: activations are the same size in every step (cnn, batch 64, one EPYC core:
// 1115 instead of 920 samples/s).
void keep_freed_memory();

// Since the start of this process (exec), to 10 ms.
double seconds_since_start();

}  // namespace lockstep::train
