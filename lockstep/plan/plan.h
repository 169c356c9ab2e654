// Plan: what moves, from where to where, in what order, for one rank of one collective.
//
// A plan is a pure function of (operation, algorithm, ranks, hosts, rank, root, counts, chunking);
// it knows no memory, no socket and no element values. plan/checker.h executes the plans of all
// ranks symbolically and proves them; engine/ executes one with real bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/slice.h"

namespace lockstep {

enum class Operation : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  barrier,
  reduce,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,  // between two ranks; both ends announce it as a send
};
inline constexpr int kOperationCount = 10;
std::string_view to_string(Operation operation);

// The buffers a rank has during an operation, in elements.
//
//                    data                        input
//   all_reduce       count, changed in place     -
//   reduce           count; root's is changed    -
//   broadcast        count                       -
//   all_gather       every rank's part           own part
//   gather           root: every rank's part     own part
//   scatter          own part                    root: every rank's part
//   reduce_scatter   own part                    every rank's part
//   all_to_all       a part from every rank      a part for every rank
//   send             receiver: count             sender: count
enum class Space : std::uint8_t {
  data,
  input,
  scratch,  // Plan::scratch_count elements; of the type of the data. Shared scratch is another one
            // in every second operation that has some: what one operation leaves there may still be
            // read while the next one writes, but not while the one after that does
  partial,  // Plan::partial_count sums that are not finished; of the accumulation type
};
inline constexpr int kSpaceCount = 4;

struct Location {
  int rank = 0;
  Space space = Space::data;
  // Of a value that is reduced: it is the sum of an aligned block of 2^level ranks (see order.h).
  std::uint8_t level = 0;
  Range range;
};

enum class StepKind : std::uint8_t {
  copy,    // destination ← source
  reduce,  // every destination ← sources, merged as order.h says. Finished (mean, rounding) unless
           // the destination is in partial
  barrier,  // goes on when every rank of this host has come here; orders all memory before it to
            // all after it
  send,     // starts sending the source to peer; the bytes are read until the peer has them
  receive,  // asks for the destination from peer; i-th receive from a peer takes its i-th send
  wait,     // goes on when the first `messages` receives of this plan have landed
  flush,    // goes on when what the first `messages` sends of this plan read may be overwritten
};
std::string_view to_string(StepKind kind);

struct Step {
  StepKind kind = StepKind::barrier;
  std::uint32_t destinations = 0;  // how many of Plan::locations from `first` on
  std::uint32_t sources = 0;       // how many after those
  std::int32_t peer = -1;
  std::size_t first = 0;
  std::int64_t messages = 0;
};

// What the ranks must have in common for a plan to run.
struct Needs {
  bool shared_data = false;     // ranks of a host can read and write each other's data
  bool shared_input = false;    // ranks of a host can read each other's input
  bool shared_scratch = false;  // ranks of a host can read and write each other's scratch
  bool messages = false;        // send and receive between any two ranks

  bool operator==(const Needs&) const = default;
};
std::string to_string(const Needs& needs);

// In which order contributions are added.
enum class Order : std::uint8_t {
  canonical,  // the tree of order.h, whatever the algorithm: the same bits always
  any,        // only where the user asks for it
};

// What a plan is made for. Two ranks of one operation differ in `rank` alone (all_to_all with
// counts: in the counts, too).
struct Shape {
  Operation operation = Operation::barrier;
  int ranks = 1;
  int rank = 0;
  int root = 0;                  // broadcast, reduce, gather, scatter; send: the sender
  std::int64_t count = 0;        // elements of data; of one part where there are parts
  std::int64_t align_count = 1;  // slices start at multiples of this many elements
  std::int64_t chunk_count = 1;  // elements in flight at a time; the scratch bound follows from it
  std::int64_t few_count = 0;    // so few that every rank may read everybody's at once
  // Elements of each rank's part; empty: `count` each. all_to_all: of the part for each rank.
  std::span<const std::int64_t> counts = {};
  std::span<const std::int64_t> receive_counts = {};  // all_to_all: of the part from each rank
  std::span<const int> hosts = {};                    // by rank; empty: all on one
  int peer = 0;                                       // send: the other rank

  int host_of(int at) const { return hosts.empty() ? 0 : hosts[static_cast<std::size_t>(at)]; }
};

// Where each rank's part lies in a buffer that holds them all, in rank order.
class Parts {
 public:
  // `counts` empty: `count` each.
  Parts(int ranks, std::int64_t count, std::span<const std::int64_t> counts);
  Range operator[](int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return {begins_[index], begins_[index + 1] - begins_[index]};
  }
  std::int64_t total() const { return begins_.back(); }

 private:
  std::vector<std::int64_t> begins_;
};

// Elements of data and of input on rank `shape.rank`.
std::int64_t data_count(const Shape& shape);
std::int64_t input_count(const Shape& shape);

struct Plan {
  std::string_view algorithm;
  Needs needs;
  std::int64_t scratch_count = 0;
  std::int64_t partial_count = 0;
  int barriers = 0;  // steps that are one
  std::vector<Step> steps;
  std::vector<Location> locations;

  std::span<const Location> destinations(const Step& step) const {
    return {locations.data() + step.first, step.destinations};
  }
  std::span<const Location> sources(const Step& step) const {
    return {locations.data() + step.first + step.destinations, step.sources};
  }
};

// What an algorithm costs on its longest way, in units that a machine has prices for (cost.h).
struct Cost {
  double rounds = 0;         // messages that wait for one another
  double sent_count = 0;     // elements that the busiest rank sends
  double reduced_count = 0;  // elements that it adds
  double messages = 0;       // that it sends
};

// One algorithm: a row of the table.
struct Algorithm {
  std::string_view name;
  Operation operation;
  Needs needs;
  Order order;
  Plan (*make)(const Shape& shape);
  // Whether it can make a plan for this shape; null: for every shape of its operation.
  bool (*accepts)(const Shape& shape);
  // Null where the table's order decides: nothing that needs messages is faster than what shares
  // memory.
  Cost (*cost)(const Shape& shape);
  std::string_view why;
  // Null, or whether it is taken when nobody asks for it by name.
  bool (*suits)(const Shape& shape) = nullptr;
};

}  // namespace lockstep
