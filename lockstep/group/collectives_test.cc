// Every operation by every algorithm, on every kind of memory and placement, compared to the bit
// with a scalar reference in canonical order (expected_results.h). As the reference does not know
// where ranks are and by which algorithm they work, the same inputs give the same bits on all.
//
// Covered are all of
//   (operation, algorithm, placement, ranks)            EveryAlgorithmOnEveryNumberOfRanks
//   (operation, algorithm, placement, count 0…2×ranks)  EveryCount, on 3 and 4 ranks
//   (operation, algorithm, placement, kind of count)    EveryCount: odd primes; several chunks
//   (operation, algorithm, dtype, reduction)            EveryTypeAndReduction
// and, taking turns within those: roots, even and uneven parts, in place or not, blocking or not,
// starts on and off alignment. Every call has sentinels at both ends of its tensors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/group/one_call.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using test::Call;
using test::Values;
using ::testing::Each;
using ::testing::IsEmpty;

// Where the ranks are and what memory they pass.
struct Placement {
  const char* name;
  Transport transport;
  bool arena;                        // memory of Group::allocate, or their own
  int (*host)(int rank, int ranks);  // null: all are on one
};

int by_halves(int rank, int ranks) {
  return rank < (ranks + 1) / 2 ? 0 : 1;
}
int by_turns(int rank, int ranks) {
  return ranks > 2 ? rank % 3 % 2 : rank % 2;
}

constexpr Placement kPlacements[] = {
    {"arena", Transport::shm, true, nullptr},
    {"staged", Transport::shm, false, nullptr},
    {"tcp", Transport::tcp, false, nullptr},
    {"hosts", Transport::automatic, true, by_halves},
    {"hosts_staged", Transport::automatic, false, by_turns},
};

constexpr Operation kOperations[] = {
    Operation::all_reduce,     Operation::broadcast, Operation::all_gather,
    Operation::barrier,        Operation::reduce,    Operation::scatter,
    Operation::reduce_scatter, Operation::gather,    Operation::all_to_all,
};

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

std::vector<int> hosts_of(const Placement& placement, int ranks) {
  std::vector<int> hosts;
  for (int rank = 0; placement.host != nullptr && rank < ranks; ++rank) {
    hosts.push_back(placement.host(rank, ranks));
  }
  return hosts;
}

Reach reach_of(const Placement& placement, int ranks) {
  const std::vector<int> hosts = hosts_of(placement, ranks);
  const bool apart = placement.transport == Transport::tcp;
  const bool several = !hosts.empty() && hosts.back() != hosts.front();
  const bool spread = several || std::any_of(hosts.begin(), hosts.end(),
                                             [&](int host) { return host != hosts.front(); });
  const auto count = [&](int host) { return std::count(hosts.begin(), hosts.end(), host); };
  const bool shares = !apart && (hosts.empty() || count(0) > 1 || count(1) > 1);
  return {.one_host = !apart && !spread,
          .shared_data = shares && placement.arena,
          .shared_input = shares && placement.arena,
          .shared_scratch = shares,
          .messages = true};
}

bool usable(const Call& call, const Reach& reach, int ranks) {
  std::vector<std::int64_t> counts, receive_counts;
  const Shape shape = test::shape_of(call, 0, ranks, counts, receive_counts);
  return reach.allows(call.algorithm->needs) &&
         (call.algorithm->accepts == nullptr || call.algorithm->accepts(shape));
}

// The algorithms of an operation that this many ranks can use, placed so.
std::vector<const Algorithm*> algorithms_for(Operation operation, const Reach& reach, int ranks) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : algorithms()) {
    Call call;
    call.operation = operation;
    call.algorithm = &algorithm;
    if (algorithm.operation == operation && usable(call, reach, ranks)) found.push_back(&algorithm);
  }
  return found;
}

// What a group can be told to use at once: one algorithm an operation.
using Algorithms = std::map<Operation, const Algorithm*>;

std::vector<Algorithms> rounds_of(const Placement& placement, int ranks) {
  const Reach reach = reach_of(placement, ranks);
  std::vector<Algorithms> rounds;
  for (const Operation operation : kOperations) {
    const auto found = algorithms_for(operation, reach, ranks);
    if (rounds.size() < found.size()) rounds.resize(found.size());
  }
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    for (const Operation operation : kOperations) {
      const auto found = algorithms_for(operation, reach, ranks);
      // Those with fewer algorithms need no more calls once all have had their turn.
      if (round < found.size()) rounds[round][operation] = found[round];
    }
  }
  return rounds;
}

// Gives a group the memory that the placement says.
class Memory {
 public:
  Memory(Group& group, const Placement& placement, std::size_t bytes) {
    if (placement.arena) {
      block_ = group.allocate(bytes);
      data_ = block_->data();
      return;
    }
    own_ = test::Bytes(bytes + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(own_.data());
    data_ = own_.data() + (64 - address % 64) % 64;
  }
  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<SharedBlock> block_;
  test::Bytes own_;
  std::byte* data_ = nullptr;
};

// Makes those of `calls` that their algorithms take, on a group that is told to use `chosen`.
void make_calls(const Placement& placement, int ranks, const Algorithms& chosen,
                std::vector<Call> calls) {
  const Reach reach = reach_of(placement, ranks);
  std::erase_if(calls, [&](const Call& call) { return !usable(call, reach, ranks); });
  Settings settings;
  settings.transport = placement.transport;
  settings.order = Order::any;  // the ring may be forced, too
  settings.join_timeout = settings.operation_timeout = std::chrono::seconds(60);
  for (const auto& [operation, algorithm] : chosen) {
    settings.algorithms[operation] = algorithm->name;
  }
  std::size_t bytes = 0;
  for (const Call& call : calls) bytes = std::max(bytes, test::bytes_needed(call, ranks));
  const auto errors = run_job(
      ranks, settings,
      [&](Group& group) {
        const Memory memory(group, placement, bytes);
        for (const Call& call : calls) {
          const std::string wrong = test::make_call(group, memory.data(), call);
          EXPECT_EQ(wrong, "") << placement.name;
        }
        group.barrier();
      },
      hosts_of(placement, ranks));
  EXPECT_THAT(errors, Each(IsEmpty())) << placement.name << ", " << ranks << " ranks";
}

// Calls of one algorithm with what takes turns set by `turn`.
Call call_of(const Algorithm* algorithm, std::int64_t count, int ranks, std::uint64_t turn) {
  Call call;
  call.operation = algorithm->operation;
  call.algorithm = algorithm;
  call.values = algorithm->order == Order::any ? Values::exact : Values::random;
  call.root = has_root(call.operation) ? static_cast<int>(turn % static_cast<unsigned>(ranks)) : 0;
  call.count = count;
  call.in_place = turn % 2 == 0;
  call.asynchronous = turn % 3 == 0;
  call.misaligned = static_cast<std::int64_t>(turn * 3 % 5);
  call.seed = turn;
  return call;
}

class OnEachPlacement : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, OnEachPlacement, ::testing::ValuesIn(kPlacements),
                         [](const auto& of) { return std::string(of.param.name); });

TEST_P(OnEachPlacement, EveryAlgorithmOnEveryNumberOfRanks) {
  const Placement& placement = GetParam();
  std::uint64_t turn = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32}) {
    const Reach reach = reach_of(placement, ranks);
    for (const Algorithms& chosen : rounds_of(placement, ranks)) {
      std::vector<Call> calls;
      for (const auto& [operation, algorithm] : chosen) {
        for (const std::int64_t count : {ranks - 1, 2 * ranks, 1009}) {
          Call call = call_of(algorithm, count, ranks, ++turn);
          call.uneven = turn % 4 < 2;
          if (!usable(call, reach, ranks)) call.uneven = false;
          calls.push_back(call);
        }
      }
      make_calls(placement, ranks, chosen, calls);
    }
  }
}

TEST_P(OnEachPlacement, EveryCount) {
  const Placement& placement = GetParam();
  std::uint64_t turn = 0;
  for (const int ranks : {3, 4}) {
    std::vector<std::int64_t> counts = {127, 257, 4099, 65'537};
    for (std::int64_t count = 0; count <= 2 * ranks; ++count) counts.push_back(count);
    for (const Algorithms& chosen : rounds_of(placement, ranks)) {
      std::vector<Call> calls;
      for (const auto& [operation, algorithm] : chosen) {
        for (const std::int64_t count : counts) {
          calls.push_back(call_of(algorithm, count, ranks, ++turn));
        }
        // Of several chunks: staged ones are 512 KiB and less, messages 4 MiB.
        calls.push_back(
            call_of(algorithm, test::has_parts(operation) ? 700'001 : 2'100'001, ranks, ++turn));
        calls.back().dtype = DType::f32;
      }
      make_calls(placement, ranks, chosen, calls);
    }
  }
}

TEST_P(OnEachPlacement, EveryTypeAndReduction) {
  const Placement& placement = GetParam();
  constexpr int kRanks = 4;
  std::uint64_t turn = 0;
  for (const Algorithms& chosen : rounds_of(placement, kRanks)) {
    std::vector<Call> calls;
    for (const auto& [operation, algorithm] : chosen) {
      for (int d = 0; d < kDTypeCount; ++d) {
        for (int r = 0; r < (test::reduces(operation) ? kReduceCount : 1); ++r) {
          Call call = call_of(algorithm, 1031, kRanks, ++turn);
          call.dtype = static_cast<DType>(d);
          call.reduce = static_cast<Reduce>(r);
          if (is_defined(call.reduce, call.dtype)) calls.push_back(call);
        }
      }
    }
    make_calls(placement, kRanks, chosen, calls);
  }
}

}  // namespace
}  // namespace lockstep
