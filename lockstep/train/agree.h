// Parts of the training that succeed on all ranks or on none.
#pragma once

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/group/group.h"

namespace lockstep::train {

// An error that every rank throws at the same point with the same message: one rank reports it.
class AgreedError final : public Error {
 public:
  using Error::Error;
};

// Collective. Runs `part`; if it threw on any rank, every rank throws AgreedError, which names the
// ranks unless it was all of them.
void agree(Group& group, const std::function<void()>& part);

}  // namespace lockstep::train
