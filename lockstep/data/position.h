// Where a run is in its data, to be kept beside the model in a checkpoint: in samples rather than
// steps, so that it means the same for any number of ranks and any batch.
//
// Thread rule: values and pure functions; free to use anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct DataPosition {
  std::int64_t epoch = 0;         // from 0
  std::int64_t samples_done = 0;  // of this epoch, on all ranks together; under sample_count, or 0

  // What decides the order of the samples. A position in one order says nothing about another.
  std::int64_t sample_count = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;

  bool operator==(const DataPosition&) const = default;
};

// {"lockstep_data_position":1,"epoch":3,"samples_done":480,"sample_count":60000,"seed":7,
// "shuffle":true} on one line; the 1 is the version of the format.
std::string to_json(const DataPosition& position);

// Throws Error(corrupt) that names the member for what to_json cannot have written, and
// Error(unsupported) for another version.
DataPosition position_of_json(std::string_view text);

}  // namespace lockstep
