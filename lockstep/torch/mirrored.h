// mirrored: the ranks of a job as threads of this process, without a launcher.
//
//   lockstep::mirrored(4, [&](lockstep::Group& group) {
//     auto net = std::make_shared<Net>();
//     lockstep::DistributedDataParallel ddp(net, group);   // from here on as with lockstep::init()
//     …
//   });
//
// docs/mirrored.md says what threads share that processes do not (above all LibTorch's one random
// generator), and how errors come out.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

namespace internal {
void run_mirrored(int ranks, const std::function<void(Group&)>& body);
}  // namespace internal

// Runs `body(group)` on `ranks` ranks at once, each a thread, and returns when all have ended: with
// nothing, or with what each returned, by rank. `body` is one object that all ranks call.
//
// Each rank computes on its own share of the cores: LibTorch uses OMP_NUM_THREADS threads in it
// where that is set, else usable cores / ranks, at least 1. Meanwhile OpenBLAS, whose threads
// belong to the process, computes in the rank's own thread, unless OPENBLAS_NUM_THREADS is set.
// Both are as before when it returns. A rank begins with the caller's thread-local state (whether
// gradients are computed, autocast …) and keeps its own.
//
// Errors: those of run_rank_threads (lockstep/group/rank_threads.h): the first rank that fails ends
// the others, and its exception comes out of here.
template <class Body>
auto mirrored(int ranks, Body&& body) {
  using Result = std::invoke_result_t<Body&, Group&>;
  if constexpr (std::is_void_v<Result>) {
    internal::run_mirrored(ranks, [&body](Group& group) { std::invoke(body, group); });
  } else {
    static_assert(!std::is_reference_v<Result>, "a rank's result must be a value");
    std::vector<std::optional<Result>> results(static_cast<std::size_t>(ranks > 0 ? ranks : 0));
    internal::run_mirrored(ranks, [&](Group& group) {
      results[static_cast<std::size_t>(group.rank())].emplace(std::invoke(body, group));
    });
    std::vector<Result> values;
    values.reserve(results.size());
    for (auto& result : results) values.push_back(std::move(*result));
    return values;
  }
}

}  // namespace lockstep
