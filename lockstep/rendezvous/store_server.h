// The store of a job: admits its ranks, passes small texts between them, and tells everybody when
// one is lost. Rank 0's process hosts it.
//
// A rank is lost when its connection closes without a farewell; the kernel closes it however the
// process dies. One thread, one poll(2) loop, no operation on it blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/env/fd.h"
#include "lockstep/transport/tcp/stream.h"

namespace lockstep {

struct StoreOptions {
  int world_size = 1;
  JobKey key;
  // From the start to the last rank's joining; then all that have joined are told who is missing.
  std::chrono::milliseconds join_timeout{120'000};
};

class StoreServer {
 public:
  // `listener` listens and does not block. Throws Error(io) when this process may not have an open
  // file for every rank.
  StoreServer(Fd listener, StoreOptions options);
  // Closes every connection: ranks still there see that the store is gone.
  ~StoreServer();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace lockstep
