// The algorithms there are, one file each, and the table that chooses among them.
// A new algorithm is a file, its declaration here, and a row in algorithms.cc.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lockstep/plan/cost.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

Plan all_reduce_arena(const Shape& shape);
Plan all_reduce_flat(const Shape& shape);
Plan all_reduce_staged(const Shape& shape);
Plan all_reduce_hierarchical(const Shape& shape);
Plan all_reduce_hierarchical_staged(const Shape& shape);
Plan all_reduce_direct(const Shape& shape);
Plan all_reduce_doubling(const Shape& shape);
Plan all_reduce_halving(const Shape& shape);
Plan all_reduce_tree(const Shape& shape);
Plan all_reduce_ring(const Shape& shape);
Plan reduce_arena(const Shape& shape);
Plan reduce_staged(const Shape& shape);
Plan reduce_tree(const Shape& shape);
Plan reduce_scatter_arena(const Shape& shape);
Plan reduce_scatter_staged(const Shape& shape);
Plan reduce_scatter_direct(const Shape& shape);
Plan broadcast_arena(const Shape& shape);
Plan broadcast_staged(const Shape& shape);
Plan broadcast_hierarchical(const Shape& shape);
Plan broadcast_tree(const Shape& shape);
Plan broadcast_chain(const Shape& shape);
Plan all_gather_arena(const Shape& shape);
Plan all_gather_staged(const Shape& shape);
Plan all_gather_direct(const Shape& shape);
Plan all_gather_ring(const Shape& shape);
Plan all_gather_bruck(const Shape& shape);
Plan gather_staged(const Shape& shape);
Plan gather_direct(const Shape& shape);
Plan scatter_staged(const Shape& shape);
Plan scatter_direct(const Shape& shape);
Plan all_to_all_arena(const Shape& shape);
Plan all_to_all_staged(const Shape& shape);
Plan all_to_all_direct(const Shape& shape);
Plan all_to_all_bruck(const Shape& shape);
Plan barrier_arena(const Shape& shape);
Plan barrier_hierarchical(const Shape& shape);
Plan barrier_dissemination(const Shape& shape);
Plan send_direct(const Shape& shape);

bool power_of_two_ranks(const Shape& shape);
bool few_elements(const Shape& shape);

// Every algorithm, best first within an operation.
std::span<const Algorithm> algorithms();

// The one of that name; null: there is none.
const Algorithm* find_algorithm(Operation operation, std::string_view name);

// What a group's transports can do for one operation.
struct Reach {
  bool one_host = true;        // all ranks are on one host
  bool shared_data = false;    // this operation's data is memory that the ranks of each host map
  bool shared_input = false;   // the same of its input
  bool shared_scratch = true;  // ranks of a host share scratch
  bool messages = true;        // every two ranks can exchange messages

  bool allows(const Needs& needs) const;
  bool operator==(const Reach&) const = default;
};

// What the caller asks of the choice.
struct Choice {
  std::string_view forced = {};  // an algorithm's name; empty: the best
  Order order = Order::canonical;
};

// The best algorithm of `shape.operation` that `reach` allows: one that shares memory before one
// that sends messages, and among those the cheapest by `prices`. `shape` must be the same on all
// ranks but for its rank. Null when `forced` names none that can be used here.
const Algorithm* choose(const Shape& shape, std::int64_t element_bytes, const Reach& reach,
                        const Prices& prices, const Choice& choice = {});

}  // namespace lockstep
