#include "lockstep/group/world.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/env/cpu.h"
#include "lockstep/group/host.h"
#include "lockstep/transport/interface.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::chrono::milliseconds kStoreGrace{2'000};

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    fail_errno(errno, "cannot draw a random number");
  }
  return number;
}

void require_listening(Fd& socket) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  const int got = ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
  if (got == 0 && listens == 1) return;
  fail(Code::invalid_argument,
       "LOCKSTEP_STORE_FD='{}' is no listening socket: it is inherited from `lockstep run`, and a "
       "process can join its job once",
       socket.release());  // whoever's it is, it is not ours to close
}

}  // namespace

std::string Neighbour::to_wire() const {
  WireWriter writer;
  writer.put_text(host);
  writer.put(static_cast<std::uint8_t>(transport));
  writer.put(job);
  for (const double price :
       {prices.latency_us, prices.message_us, prices.byte_us, prices.reduced_byte_us}) {
    writer.put(std::bit_cast<std::uint64_t>(price));
  }
  writer.put(static_cast<std::uint32_t>(cores.size()));
  for (const int core : cores) writer.put(static_cast<std::int32_t>(core));
  return writer.bytes();
}

Neighbour Neighbour::from_wire(const std::string& bytes) {
  WireReader reader(bytes);
  Neighbour neighbour;
  neighbour.host = reader.get_text();
  neighbour.transport = static_cast<Transport>(reader.get<std::uint8_t>());
  neighbour.job = reader.get<std::uint64_t>();
  Prices& prices = neighbour.prices;
  for (double* price :
       {&prices.latency_us, &prices.message_us, &prices.byte_us, &prices.reduced_byte_us}) {
    *price = std::bit_cast<double>(reader.get<std::uint64_t>());
  }
  neighbour.cores.resize(std::min<std::size_t>(reader.get<std::uint32_t>(), bytes.size()));
  for (int& core : neighbour.cores) core = reader.get<std::int32_t>();
  return neighbour;
}

World::World(const Settings& settings)
    : settings_(settings), uncaught_(std::uncaught_exceptions()) {
  // The store gives up first: it knows who is missing.
  const auto deadline = Deadline::after(settings_.join_timeout + kStoreGrace);
  address_of_interface(settings_.interface);  // a wrong one ends here, before any connection
  const StoreIdentity identity{settings_.rank, settings_.world_size, who_am_i(),
                               JobKey(settings_.secret, settings_.encrypt)};
  join(identity);
  try {
    meet(deadline);
    mesh_ = std::make_unique<Mesh>(*store_, identity, settings_.interface, deadline);
  } catch (const Error& error) {
    store_->report(error);  // the others are told why, not only that this rank is gone
    throw;
  }
}

World::~World() {
  say_farewell();
}

void World::say_farewell() {
  store_->leave(std::uncaught_exceptions() > uncaught_ ? "left after an exception"
                                                       : "has left the group");
}

std::string World::job_name() const {
  return fmt::format("{:016x}", neighbours_[0].job);
}

std::vector<std::string> World::exchange(const std::string& text, const Deadline& deadline) {
  return store_->exchange(text, deadline);
}

void World::enter(const Member* member) {
  const std::lock_guard lock(mutex_);
  groups_.insert(member);
}

void World::leave(const Member* member) {
  const std::lock_guard lock(mutex_);
  groups_.erase(member);
}

void World::listen(Engine& engine) {
  store_->listen({[this](const Error& error) { broke(error); },
                  [this](int rank, const std::string& how) { left(rank, how); }});
  engine.watch(store_->fd(), [this] { return store_->on_readable(); });
}

void World::broke(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (const Member* group : groups_) group->engine->break_with(error);
}

void World::left(int rank, const std::string& how) {
  const std::lock_guard lock(mutex_);
  for (const Member* group : groups_) {
    const auto found = std::find(group->members.begin(), group->members.end(), rank);
    if (found == group->members.end()) continue;
    const auto in_group = static_cast<int>(found - group->members.begin());
    mesh_->left(group->group, in_group, how);
    group->engine->peer_left(in_group, how);
  }
}

void World::join(const StoreIdentity& identity) {
  if (settings_.rank == 0) host_store(identity);
  store_ = std::make_unique<StoreClient>(settings_.master_addr, settings_.master_port, identity,
                                         Deadline::after(settings_.join_timeout));
}

void World::host_store(const StoreIdentity& identity) {
  Fd listener(settings_.store_fd);
  if (listener.valid()) {
    require_listening(listener);
    ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(listener.get(), F_SETFL, O_NONBLOCK);
  } else {
    try {
      listener = listen_on(settings_.master_addr, settings_.master_port);
    } catch (const Error& error) {
      claim_rank0(identity);
      fail(error.code(), "rank 0 cannot host the group's store: {} (MASTER_PORT)", error.what());
    }
  }
  server_ = std::make_unique<StoreServer>(
      std::move(listener),
      StoreOptions{settings_.world_size, identity.key, settings_.join_timeout});
}

// The port is taken. If a group is forming there, this process is its second rank 0: everybody
// must hear of it, or the first one would wait for ranks that never come.
void World::claim_rank0(const StoreIdentity& identity) const {
  constexpr auto kPatience = std::chrono::seconds(3);
  try {
    StoreClient client(settings_.master_addr, settings_.master_port, identity,
                       Deadline::after(kPatience));
    client.exchange("", Deadline::after(kPatience));
  } catch (const Error& error) {
    if (error.code() == Code::invalid_argument) throw;
    // Not a store of this job: then the port is simply in use.
  }
}

void World::meet(const Deadline& deadline) {
  const Neighbour own{settings_.host.empty() ? host_key() : settings_.host, allowed_cores(),
                      settings_.transport, random_number(), settings_.prices};
  int local_size = 0;
  for (const std::string& text : store_->exchange(own.to_wire(), deadline)) {
    neighbours_.push_back(Neighbour::from_wire(text));
    if (neighbours_.back().host == own.host) ++local_size;
  }
  check_transports();
  if (settings_.local_world_size && *settings_.local_world_size != local_size) {
    fail(Code::invalid_argument,
         "LOCAL_WORLD_SIZE='{}', but {} of the {} ranks are on the host of rank {}",
         *settings_.local_world_size, local_size, settings_.world_size, settings_.rank);
  }
}

void World::check_transports() const {
  for (std::size_t rank = 1; rank < neighbours_.size(); ++rank) {
    if (neighbours_[rank].transport != neighbours_[0].transport) {
      fail(Code::invalid_argument,
           "LOCKSTEP_TRANSPORT must be the same on all ranks: rank 0 and rank {} differ", rank);
    }
    if (settings_.transport == Transport::shm && neighbours_[rank].host != neighbours_[0].host) {
      fail(Code::unsupported,
           "LOCKSTEP_TRANSPORT=shm, but rank {} is not on the host of rank 0 (another machine, "
           "network or process namespace, or user)",
           rank);
    }
  }
}

}  // namespace lockstep
