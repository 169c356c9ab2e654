// The measuring loop of bench/collectives, the same for every system in it.
//
// A batch of calls is timed as a whole, without barriers between the calls; bench/collectives takes
// the slowest rank of each batch, so that a rank that runs ahead of the others gains nothing.
// After the last batch of a size the result of one more call is compared element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::bench {

enum class Collective { all_reduce, broadcast, all_gather, reduce_scatter };

// What a collective works on. `whole_count` is a multiple of the ranks.
struct Buffers {
  float* whole = nullptr;        // all_reduce and broadcast: in place; all_gather: the output;
                                 // reduce_scatter: the input
  float* part = nullptr;         // whole_count / ranks; all_gather: the input; reduce_scatter: the
                                 // output
  std::int64_t whole_count = 0;  // f32 elements
};

enum class Memory {
  library,  // what the system hands out for its fastest way, if it has such a thing
  own,      // the user's own
};

// One rank of a system under test. Everything throws std::exception on failure.
class System {
 public:
  virtual ~System() = default;
  virtual std::string version() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // At least 64-byte aligned; lives as long as the system. Collective, equal sizes everywhere.
  virtual float* allocate(std::size_t bytes, Memory memory) = 0;
  // Sums, f32; the root is rank 0. Returns when this rank's result stands.
  virtual void call(Collective collective, const Buffers& buffers) = 0;
};

// 64-byte aligned memory with its pages present, never freed.
float* ordinary_memory(std::size_t bytes);

// Restricts this process to the `local_rank`th of its cores, counted round and round; ranks that a
// foreign launcher starts are pinned so as ours are.
void pin_to_core(int local_rank);

// Measures as the options say and writes one line of JSON for each size to PREFIX.RANK:
//   --out PREFIX --operation NAME --memory library|own --sizes BYTES,BYTES,…
//   --budget-ms N      about how long to measure a size
//   --interface NAME   count the bytes that leave by it
// or, with --out PREFIX --wait-s N, what it costs to wait N seconds for rank 0.
// Returns the exit status of the program; says on stderr what went wrong.
int measure(System& system, int argc, char** argv);

}  // namespace lockstep::bench
