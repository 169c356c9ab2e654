// A data position out of a checkpoint.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/position.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace lockstep;
  try {
    const auto position = position_of_json({reinterpret_cast<const char*>(data), bytes});
    LOCKSTEP_CHECK(position_of_json(to_json(position)) == position);
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::corrupt || error.code() == Code::unsupported);
  }
  return 0;
}
