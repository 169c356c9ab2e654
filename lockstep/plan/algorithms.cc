#include "lockstep/plan/algorithms.h"

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr Algorithm kAlgorithms[] = {
    {"arena", Operation::all_reduce, Needs::shared_data, all_reduce_arena,
     "one pass over memory, no copies"},
    {"staged", Operation::all_reduce, Needs::shared_scratch, all_reduce_staged,
     "one host, memory of the user's own"},
    {"direct", Operation::all_reduce, Needs::messages, all_reduce_direct,
     "least bytes, canonical order"},
    {"staged", Operation::broadcast, Needs::shared_scratch, broadcast_staged, "one host"},
    {"tree", Operation::broadcast, Needs::messages, broadcast_tree, "few rounds, pipelined"},
    {"staged", Operation::all_gather, Needs::shared_scratch, all_gather_staged, "one host"},
    {"direct", Operation::all_gather, Needs::messages, all_gather_direct, "least bytes"},
    {"arena", Operation::barrier, Needs::shared_scratch, barrier_arena, "one step"},
    {"dissemination", Operation::barrier, Needs::messages, barrier_dissemination, "few rounds"},
};

bool allowed(Needs needs, const Reach& reach) {
  switch (needs) {
    case Needs::shared_data:
      return reach.shared_data;
    case Needs::shared_scratch:
      return reach.shared_scratch;
    case Needs::messages:
      return true;
  }
  return false;
}

}  // namespace

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

const Algorithm& choose(Operation operation, const Reach& reach) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.operation == operation && allowed(algorithm.needs, reach)) return algorithm;
  }
  internal::check_failed("an algorithm over messages exists for every operation", __FILE__,
                         __LINE__);
}

}  // namespace lockstep
