#include "lockstep/plan/algorithms.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr Needs kData{.shared_data = true};
constexpr Needs kInput{.shared_input = true};
constexpr Needs kScratch{.shared_scratch = true};
constexpr Needs kMessages{.messages = true};
constexpr Needs kDataAndMessages{.shared_data = true, .messages = true};
constexpr Needs kScratchAndMessages{.shared_scratch = true, .messages = true};

bool equal_parts(const Shape& shape) {
  return shape.counts.empty() && shape.receive_counts.empty();
}

double ranks_of(const Shape& shape) {
  return shape.ranks;
}
double rounds_of(const Shape& shape) {
  return std::ceil(std::log2(ranks_of(shape)));
}
double count_of(const Shape& shape) {
  return static_cast<double>(shape.count);
}
// The share of a tensor that is not a rank's own.
double others_of(const Shape& shape) {
  return (ranks_of(shape) - 1) / ranks_of(shape);
}
double chunks_of(const Shape& shape) {
  return std::max(1.0, std::ceil(count_of(shape) / static_cast<double>(shape.chunk_count)));
}

Cost cost_all_reduce_direct(const Shape& s) {
  return {2, 2 * count_of(s) * others_of(s), count_of(s), 2 * (ranks_of(s) - 1) * chunks_of(s)};
}
Cost cost_all_reduce_doubling(const Shape& s) {
  const double ragged = power_of_two_ranks(s) ? 1 : 2;
  const double rounds = rounds_of(s) * chunks_of(s);  // one chunk after the other
  return {rounds, ragged * count_of(s) * rounds_of(s), 2 * count_of(s) * rounds_of(s),
          ragged * rounds};
}
Cost cost_all_reduce_halving(const Shape& s) {
  const double rounds = 2 * rounds_of(s) * chunks_of(s);  // one chunk after the other
  return {rounds, 2 * count_of(s) * others_of(s), 2 * count_of(s) * others_of(s), rounds};
}
Cost cost_all_reduce_tree(const Shape& s) {
  return {2 * rounds_of(s), 2 * count_of(s) * rounds_of(s), 2 * count_of(s) * rounds_of(s),
          rounds_of(s) * chunks_of(s)};
}
Cost cost_ring(const Shape& s) {
  return {2 * (ranks_of(s) - 1) * chunks_of(s), 2 * count_of(s) * others_of(s), count_of(s),
          2 * (ranks_of(s) - 1) * chunks_of(s)};
}
Cost cost_broadcast_tree(const Shape& s) {
  return {rounds_of(s), count_of(s) * rounds_of(s), 0, rounds_of(s) * chunks_of(s)};
}
Cost cost_broadcast_chain(const Shape& s) {
  const double filling = (ranks_of(s) - 2) / chunks_of(s);
  return {ranks_of(s) - 1, count_of(s) * (1 + std::max(0.0, filling)), 0, chunks_of(s)};
}
Cost cost_all_gather_direct(const Shape& s) {
  return {1, count_of(s) * (ranks_of(s) - 1), 0, ranks_of(s) - 1};
}
Cost cost_all_gather_ring(const Shape& s) {
  return {ranks_of(s) - 1, count_of(s) * (ranks_of(s) - 1), 0, ranks_of(s) - 1};
}
Cost cost_all_gather_bruck(const Shape& s) {
  const double all = count_of(s) * (ranks_of(s) - 1);
  return {rounds_of(s), all, 2 * all, rounds_of(s)};
}
Cost cost_all_to_all_bruck(const Shape& s) {
  const double half = count_of(s) * ranks_of(s) / 2 * rounds_of(s);
  return {rounds_of(s), half, 4 * half, rounds_of(s)};
}

using Op = Operation;
constexpr Order kFixed = Order::canonical;

constexpr Algorithm kAlgorithms[] = {
    {"flat", Op::all_reduce, kScratch, kFixed, all_reduce_flat, nullptr, nullptr,
     "one barrier, for few bytes", few_elements},
    {"arena", Op::all_reduce, kData, kFixed, all_reduce_arena, nullptr, nullptr,
     "one pass over memory, no copies"},
    {"staged", Op::all_reduce, kScratch, kFixed, all_reduce_staged, nullptr, nullptr,
     "one host, memory of the user's own"},
    {"hierarchical", Op::all_reduce, kDataAndMessages, kFixed, all_reduce_hierarchical, nullptr,
     nullptr, "adds inside hosts first"},
    {"hierarchical_staged", Op::all_reduce, kScratchAndMessages, kFixed,
     all_reduce_hierarchical_staged, nullptr, nullptr, "the same for memory of the user's own"},
    {"direct", Op::all_reduce, kMessages, kFixed, all_reduce_direct, nullptr,
     cost_all_reduce_direct, "least bytes, two messages deep"},
    {"halving", Op::all_reduce, kMessages, kFixed, all_reduce_halving, power_of_two_ranks,
     cost_all_reduce_halving, "least bytes, few messages"},
    {"doubling", Op::all_reduce, kMessages, kFixed, all_reduce_doubling, nullptr,
     cost_all_reduce_doubling, "fewest rounds"},
    {"tree", Op::all_reduce, kMessages, kFixed, all_reduce_tree, nullptr, cost_all_reduce_tree,
     "few messages for any number of ranks"},
    {"ring", Op::all_reduce, kMessages, Order::any, all_reduce_ring, nullptr, cost_ring,
     "least bytes, neighbours only"},
    {"arena", Op::reduce, kData, kFixed, reduce_arena, nullptr, nullptr,
     "one pass over memory, no copies"},
    {"staged", Op::reduce, kScratch, kFixed, reduce_staged, nullptr, nullptr, "one host"},
    {"tree", Op::reduce, kMessages, kFixed, reduce_tree, nullptr, nullptr, "few rounds, pipelined"},
    {"arena", Op::reduce_scatter, kInput, kFixed, reduce_scatter_arena, nullptr, nullptr,
     "one pass over memory, no copies"},
    {"staged", Op::reduce_scatter, kScratch, kFixed, reduce_scatter_staged, nullptr, nullptr,
     "one host"},
    {"direct", Op::reduce_scatter, kMessages, kFixed, reduce_scatter_direct, nullptr, nullptr,
     "least bytes"},
    {"arena", Op::broadcast, kData, kFixed, broadcast_arena, nullptr, nullptr,
     "one pass over memory"},
    {"staged", Op::broadcast, kScratch, kFixed, broadcast_staged, nullptr, nullptr, "one host"},
    {"hierarchical", Op::broadcast, kScratchAndMessages, kFixed, broadcast_hierarchical, nullptr,
     nullptr, "enters each host once"},
    {"tree", Op::broadcast, kMessages, kFixed, broadcast_tree, nullptr, cost_broadcast_tree,
     "few rounds, pipelined"},
    {"chain", Op::broadcast, kMessages, kFixed, broadcast_chain, nullptr, cost_broadcast_chain,
     "every rank sends once"},
    {"arena", Op::all_gather, kData, kFixed, all_gather_arena, nullptr, nullptr,
     "one pass over memory"},
    {"staged", Op::all_gather, kScratch, kFixed, all_gather_staged, nullptr, nullptr, "one host"},
    {"direct", Op::all_gather, kMessages, kFixed, all_gather_direct, nullptr,
     cost_all_gather_direct, "least bytes, one message deep"},
    {"bruck", Op::all_gather, kMessages, kFixed, all_gather_bruck, equal_parts,
     cost_all_gather_bruck, "few messages"},
    {"ring", Op::all_gather, kMessages, kFixed, all_gather_ring, nullptr, cost_all_gather_ring,
     "neighbours only"},
    {"staged", Op::gather, kScratch, kFixed, gather_staged, nullptr, nullptr, "one host"},
    {"direct", Op::gather, kMessages, kFixed, gather_direct, nullptr, nullptr, "least bytes"},
    {"staged", Op::scatter, kScratch, kFixed, scatter_staged, nullptr, nullptr, "one host"},
    {"direct", Op::scatter, kMessages, kFixed, scatter_direct, nullptr, nullptr, "least bytes"},
    {"arena", Op::all_to_all, kData, kFixed, all_to_all_arena, equal_parts, nullptr,
     "one pass over memory"},
    {"staged", Op::all_to_all, kScratch, kFixed, all_to_all_staged, equal_parts, nullptr,
     "one host"},
    {"direct", Op::all_to_all, kMessages, kFixed, all_to_all_direct, nullptr,
     cost_all_gather_direct, "least bytes"},
    {"bruck", Op::all_to_all, kMessages, kFixed, all_to_all_bruck, equal_parts,
     cost_all_to_all_bruck, "few messages"},
    {"arena", Op::barrier, kScratch, kFixed, barrier_arena, nullptr, nullptr, "one step"},
    {"hierarchical", Op::barrier, kScratchAndMessages, kFixed, barrier_hierarchical, nullptr,
     nullptr, "inside hosts, then between"},
    {"dissemination", Op::barrier, kMessages, kFixed, barrier_dissemination, nullptr, nullptr,
     "few rounds"},
    {"direct", Op::send, kMessages, kFixed, send_direct, nullptr, nullptr, "one message"},
};

}  // namespace

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

const Algorithm* find_algorithm(Operation operation, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.operation == operation && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

bool Reach::allows(const Needs& needs) const {
  // Without messages a plan reaches no other host.
  return (needs.messages ? messages : one_host) && (!needs.shared_data || shared_data) &&
         (!needs.shared_input || shared_input) && (!needs.shared_scratch || shared_scratch);
}

const Algorithm* choose(const Shape& shape, std::int64_t element_bytes, const Reach& reach,
                        const Prices& prices, const Choice& choice) {
  const Algorithm* best = nullptr;
  double best_us = 0;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.operation != shape.operation || !reach.allows(algorithm.needs)) continue;
    if (algorithm.accepts != nullptr && !algorithm.accepts(shape)) continue;
    if (!choice.forced.empty()) {
      if (algorithm.name == choice.forced) return &algorithm;
      continue;
    }
    if (algorithm.order == Order::any && choice.order != Order::any) continue;
    if (algorithm.suits != nullptr && !algorithm.suits(shape)) continue;
    if (algorithm.cost == nullptr) {
      if (best == nullptr) return &algorithm;
      continue;
    }
    const double us = predict_us(algorithm.cost(shape), element_bytes, prices);
    if (best == nullptr || us < best_us) {
      best = &algorithm;
      best_us = us;
    }
  }
  return best;
}

}  // namespace lockstep
