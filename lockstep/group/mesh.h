// A TCP connection between every two ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/transport/link.h"

namespace lockstep {

// Collective. Listens on the address over which this rank reaches the store, tells the others,
// connects to lower ranks and accepts higher ones, each connection authenticated. By rank; null for
// itself.
std::vector<std::unique_ptr<Link>> connect_mesh(StoreClient& store, const StoreIdentity& identity,
                                                const Deadline& deadline);

}  // namespace lockstep
