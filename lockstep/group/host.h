// What makes two ranks neighbours: they can share memory exactly when their host keys are equal.
#pragma once

#include <string>

namespace lockstep {

// The running kernel, the network and process namespaces (each is a host of its own here), the
// user.
std::string host_key();

// "process 123 on host a", for messages.
std::string who_am_i();

}  // namespace lockstep
