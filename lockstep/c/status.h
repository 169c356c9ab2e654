// What a call of the C interface returns and says: no exception leaves it.
//
// Thread rule: any thread; the message is each thread's own.
#pragma once

#include <exception>

#include "lockstep/base/error.h"

namespace lockstep {

// Keeps the message for lockstep_last_error() and returns the code as a status.
int remember(Code code, const char* function, const char* message) noexcept;
// "" when nothing has failed on this thread.
const char* remembered() noexcept;

// The status of call(), whose failure is remembered as that of `function`.
template <class Call>
int status_of(const char* function, const Call& call) noexcept {
  try {
    call();
    return 0;
  } catch (const Error& error) {
    return remember(error.code(), "", error.what());
  } catch (const std::exception& error) {  // no memory, say
    return remember(Code::io, function, error.what());
  } catch (...) {
    return remember(Code::io, function, "failed for an unknown reason");
  }
}

}  // namespace lockstep
