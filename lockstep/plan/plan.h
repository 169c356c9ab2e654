// Plan: what moves, from where to where, in what order, for one rank of one collective.
//
// A plan is a pure function of (operation, algorithm, ranks, rank, root, count, chunking); it knows
// no memory, no socket and no element values. plan/checker.h executes the plans of all ranks
// symbolically and proves them; engine/ executes one with real bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/slice.h"

namespace lockstep {

enum class Operation : std::uint8_t { all_reduce, broadcast, all_gather, barrier };
std::string_view to_string(Operation operation);

// The buffers a rank has during an operation, in elements.
enum class Space : std::uint8_t {
  data,     // the tensor that is changed: `count` elements; all_gather: ranks × count
  input,    // all_gather alone: this rank's `count` elements
  scratch,  // Plan::scratch_count elements
};

struct Location {
  int rank = 0;
  Space space = Space::data;
  Range range;
};

enum class StepKind : std::uint8_t {
  copy,     // destinations[0] ← sources[0]
  reduce,   // every destination ← sources reduced in the order given, finished (mean, rounding)
  barrier,  // goes on when every rank has come here; orders all memory before it to all after it
  send,     // starts sending sources[0] to peer; the bytes are read until the peer has them
  receive,  // asks for destinations[0] from peer; i-th receive from a peer takes its i-th send
  wait,     // goes on when the first `receives` receives of this plan have landed
};
std::string_view to_string(StepKind kind);

struct Step {
  StepKind kind = StepKind::barrier;
  int peer = -1;
  std::int64_t receives = 0;
  std::vector<Location> destinations;
  std::vector<Location> sources;
};

// What the ranks must have in common for a plan to run.
enum class Needs : std::uint8_t {
  shared_data,     // every rank can read and write every rank's data
  shared_scratch,  // every rank can read and write every rank's scratch
  messages,        // send and receive between any two ranks
};
std::string_view to_string(Needs needs);

// What a plan is made for. Two ranks of one operation differ in `rank` alone.
struct Shape {
  Operation operation = Operation::barrier;
  int ranks = 1;
  int rank = 0;
  int root = 0;                  // broadcast
  std::int64_t count = 0;        // elements of data (all_gather: of input)
  std::int64_t align_count = 1;  // slices start at multiples of this many elements
  std::int64_t chunk_count = 1;  // elements in flight at a time; the scratch bound follows from it
};

struct Plan {
  std::string_view algorithm;
  Needs needs = Needs::messages;
  std::int64_t scratch_count = 0;
  std::vector<Step> steps;
};

// One algorithm: a row of the table. `make` accepts every shape of its operation.
struct Algorithm {
  std::string_view name;
  Operation operation;
  Needs needs;
  Plan (*make)(const Shape& shape);
  std::string_view why;
};

}  // namespace lockstep
