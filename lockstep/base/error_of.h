// For tests: what a call throws.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"

namespace lockstep {

inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::io, "no error");
}

}  // namespace lockstep
