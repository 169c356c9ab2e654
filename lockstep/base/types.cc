#include "lockstep/base/types.h"

namespace lockstep {

std::string_view to_string(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"bool", "u8",   "i8",  "i32", "i64",
                                                    "f16",  "bf16", "f32", "f64"};
  return kNames[static_cast<int>(dtype)];
}

std::string_view to_string(Reduce reduce) {
  constexpr std::string_view kNames[kReduceCount] = {"sum",     "mean", "min", "max",
                                                     "product", "band", "bor", "bxor"};
  return kNames[static_cast<int>(reduce)];
}

}  // namespace lockstep
