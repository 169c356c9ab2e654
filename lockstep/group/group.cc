#include "lockstep/group/group.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <thread>

#include "lockstep/engine/engine.h"
#include "lockstep/env/cpu.h"
#include "lockstep/group/host.h"
#include "lockstep/group/mesh.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/transport/interface.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::size_t kScratchBytes = 512 * 1024;
constexpr std::size_t kExchangeBytesMax = 16 << 20;
// Where every core computes, the progress thread leaves an operation to the computing thread's
// polls for so long before it takes the core.
constexpr std::chrono::milliseconds kTakeover{20};
// A sleeping core takes tens of microseconds to come back, in a virtual machine some hundred; ranks
// that compute the same are rarely further apart than this.
constexpr std::chrono::microseconds kSpin{2'000};
constexpr std::size_t kBlockAlignment = 64;
constexpr std::chrono::milliseconds kAfterLoss{100};
constexpr std::chrono::milliseconds kStoreGrace{2'000};

// What a rank tells about itself once it has joined.
struct Neighbour {
  std::string host;
  std::vector<int> cores;
  Transport transport = Transport::automatic;
  std::uint64_t job = 0;  // drawn by each rank; rank 0's names the job

  std::string to_wire() const {
    WireWriter writer;
    writer.put_text(host);
    writer.put(static_cast<std::uint8_t>(transport));
    writer.put(job);
    writer.put(static_cast<std::uint32_t>(cores.size()));
    for (const int core : cores) writer.put(static_cast<std::int32_t>(core));
    return writer.bytes();
  }
  static Neighbour from_wire(const std::string& bytes) {
    WireReader reader(bytes);
    Neighbour neighbour;
    neighbour.host = reader.get_text();
    neighbour.transport = static_cast<Transport>(reader.get<std::uint8_t>());
    neighbour.job = reader.get<std::uint64_t>();
    neighbour.cores.resize(std::min<std::size_t>(reader.get<std::uint32_t>(), bytes.size()));
    for (int& core : neighbour.cores) core = reader.get<std::int32_t>();
    return neighbour;
  }
};

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    fail_errno(errno, "cannot draw a random number");
  }
  return number;
}

class PrivateBlock final : public SharedBlock {
 public:
  explicit PrivateBlock(std::size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new(std::max(bytes, std::size_t{1}), std::align_val_t(kBlockAlignment)))) {
    std::memset(data_, 0, bytes);
  }
  ~PrivateBlock() override { ::operator delete(data_, std::align_val_t(kBlockAlignment)); }
  PrivateBlock(const PrivateBlock&) = delete;
  PrivateBlock& operator=(const PrivateBlock&) = delete;
  std::byte* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

class ArenaBlock final : public SharedBlock {
 public:
  ArenaBlock(std::vector<SharedMemory> memories, int rank, std::size_t bytes, std::uint64_t id,
             const std::shared_ptr<Engine>& engine)
      : memories_(std::move(memories)), rank_(static_cast<std::size_t>(rank)), engine_(engine) {
    region_.id = id;
    region_.bytes = bytes;
    for (const SharedMemory& memory : memories_) region_.by_rank.push_back(memory.data());
    engine->add_region(&region_);
  }
  ~ArenaBlock() override {
    if (const auto engine = engine_.lock()) engine->remove_region(&region_);
  }
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;
  std::byte* data() const override { return memories_[rank_].data(); }
  std::size_t bytes() const override { return region_.bytes; }

 private:
  const std::vector<SharedMemory> memories_;
  const std::size_t rank_;
  SharedRegion region_;
  const std::weak_ptr<Engine> engine_;  // the block may outlive the group
};

}  // namespace

class Group::Impl {
 public:
  explicit Impl(const Settings& settings) : settings_(settings) {
    if (settings.world_size == 1) return;
    try {
      form();
    } catch (const Error& error) {
      if (store_)
        store_->report(error);  // the others are told why, not only that this rank is gone
      throw;
    }
  }

  ~Impl() {
    if (store_) {
      store_->leave(std::uncaught_exceptions() > uncaught_ ? "left after an exception"
                                                           : "has left the group");
    }
    const auto failure = engine_ == nullptr ? std::nullopt : engine_->failure();
    engine_.reset();  // its thread uses everything else
    // Whoever watches the processes should see the lost one end before those that only miss it.
    if (failure && failure->code() == Code::peer_lost) std::this_thread::sleep_for(kAfterLoss);
  }

  void check(const TensorView& tensor, const char* what) const {
    if (tensor.count < 0) {
      fail(Code::invalid_argument, "{}: a tensor of {} elements", what, tensor.count);
    }
    if (tensor.count > 0 && tensor.data == nullptr) {
      fail(Code::invalid_argument, "{}: the tensor has no memory", what);
    }
  }

  Request all_reduce(const TensorView& tensor, Reduce reduce) const {
    check(tensor, "all_reduce");
    if (tensor.dtype == DType::boolean && reduce == Reduce::mean) {
      fail(Code::invalid_argument, "all_reduce: bool has no mean; use sum (or), product (and)");
    }
    return {Operation::all_reduce, reduce, 0, tensor, {}};
  }
  Request broadcast(const TensorView& tensor, int root) const {
    check(tensor, "broadcast");
    if (root < 0 || root >= settings_.world_size) {
      fail(Code::invalid_argument, "broadcast: root {} is not a rank (0..{})", root,
           settings_.world_size - 1);
    }
    return {Operation::broadcast, Reduce::sum, root, tensor, {}};
  }
  Request all_gather(const TensorView& output, const TensorView& input) const {
    check(output, "all_gather");
    check(input, "all_gather");
    if (output.dtype != input.dtype || output.count != input.count * settings_.world_size) {
      fail(Code::invalid_argument,
           "all_gather: input {}[{}] on {} ranks needs output {}[{}], not {}[{}]",
           to_string(input.dtype), input.count, settings_.world_size, to_string(input.dtype),
           input.count * settings_.world_size, to_string(output.dtype), output.count);
    }
    const auto* in = static_cast<const std::byte*>(input.data);
    const auto* out = static_cast<const std::byte*>(output.data);
    const bool overlap = in < out + output.bytes() && out < in + input.bytes();
    if (overlap && in != out + static_cast<std::size_t>(settings_.rank) * input.bytes()) {
      fail(Code::invalid_argument,
           "all_gather: input overlaps output; it may only be this rank's own part of it");
    }
    return {Operation::all_gather, Reduce::sum, 0, output, input};
  }

  void run(const Request& request) {
    if (settings_.world_size == 1) return alone(request);
    engine_->run(request);
  }
  Work submit(const Request& request) {
    if (settings_.world_size > 1) return engine_->submit(request);
    alone(request);
    return {};
  }

  std::vector<std::string> exchange(const std::string& text) {
    if (text.size() > kExchangeBytesMax) {
      fail(Code::invalid_argument, "exchange: {} bytes, at most {} are allowed", text.size(),
           kExchangeBytesMax);
    }
    if (!store_) return {text};
    return store_->exchange(text, Deadline::after(settings_.operation_timeout));
  }

  void abort(const std::string& why) {
    const Error error(Code::cancelled, fmt::format("rank {}: {}", settings_.rank, why));
    store_->report(error);
    engine_->break_with(error);
  }

  // Every rank learns from the first exchange what all ask for and whether they have it, from the
  // second whether all could open it; so all succeed or all throw the same.
  std::shared_ptr<SharedBlock> allocate(std::size_t bytes) {
    if (settings_.world_size == 1) return std::make_shared<PrivateBlock>(bytes);
    SharedMemory own;
    std::string address;
    const std::string problem = text_of_failure([&] {
      if (!arena_ || bytes == 0) return;
      own = SharedMemory::create(bytes, true);
      address = own.address().to_wire();
    });
    WireWriter writer;
    writer.put(static_cast<std::uint64_t>(bytes));
    writer.put_text(problem);
    writer.put_text(address);
    std::vector<std::string> addresses;
    const auto offers = exchange(writer.bytes());
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
      WireReader reader(offers[rank]);
      const auto theirs = reader.get<std::uint64_t>();
      if (theirs != WireReader(offers[0]).get<std::uint64_t>()) {
        fail(Code::invalid_argument, "allocate: rank 0 asks for {} bytes, rank {} for {}",
             WireReader(offers[0]).get<std::uint64_t>(), rank, theirs);
      }
      const std::string failed = reader.get_text();
      if (!failed.empty()) fail(Code::io, "allocate: rank {}: {}", rank, failed);
      addresses.push_back(reader.get_text());
    }
    if (!arena_ || bytes == 0) return std::make_shared<PrivateBlock>(bytes);
    return map_all(std::move(own), addresses, bytes);
  }

  const Settings settings_;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string transport_ = "none needed";
  // Shared only with the blocks, which look whether it is still there.
  std::shared_ptr<Engine> engine_;

 private:
  // What `call` throws, as text; empty when it succeeds.
  template <class Call>
  static std::string text_of_failure(const Call& call) {
    try {
      call();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  std::shared_ptr<SharedBlock> map_all(SharedMemory own, const std::vector<std::string>& addresses,
                                       std::size_t bytes) {
    std::vector<SharedMemory> memories(addresses.size());
    memories[static_cast<std::size_t>(settings_.rank)] = std::move(own);
    const std::string problem = text_of_failure([&] {
      for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
        if (static_cast<int>(rank) == settings_.rank) continue;
        const auto address = SharedMemory::Address::from_wire(addresses[rank]);
        memories[rank] = SharedMemory::open(address, true);
      }
    });
    const auto problems = exchange(problem);
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
      if (!problems[rank].empty()) fail(Code::io, "allocate: rank {}: {}", rank, problems[rank]);
    }
    return std::make_shared<ArenaBlock>(std::move(memories), settings_.rank, bytes, ++regions_,
                                        engine_);
  }

  void alone(const Request& request) const {
    if (request.operation == Operation::all_gather && request.input.count > 0) {
      std::memmove(request.data.data, request.input.data, request.input.bytes());
    }
  }

  void form() {
    // The store gives up first: it knows who is missing.
    const auto deadline = Deadline::after(settings_.join_timeout + kStoreGrace);
    address_of_interface(settings_.interface);  // a wrong one ends here, before any connection
    const StoreIdentity identity{settings_.rank, settings_.world_size, who_am_i(),
                                 JobKey(settings_.secret, settings_.encrypt)};
    join(identity);
    const std::vector<Neighbour> neighbours = meet(deadline);
    if (use_shared_memory(neighbours)) {
      connect_arena(deadline);
    } else {
      mesh_ = make_mesh(*store_, identity, {settings_.interface, 0}, deadline);
      transport_ = "tcp";
    }
    start(neighbours);
  }

  void join(const StoreIdentity& identity) {
    if (settings_.rank == 0) host_store(identity);
    store_ = std::make_unique<StoreClient>(settings_.master_addr, settings_.master_port, identity,
                                           Deadline::after(settings_.join_timeout));
  }

  void host_store(const StoreIdentity& identity) {
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

  static void require_listening(Fd& socket) {
    int listens = 0;
    socklen_t length = sizeof(listens);
    const int got = ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    if (got == 0 && listens == 1) return;
    fail(
        Code::invalid_argument,
        "LOCKSTEP_STORE_FD='{}' is no listening socket: it is inherited from `lockstep run`, and a "
        "process can join its job once",
        socket.release());  // whoever's it is, it is not ours to close
  }

  // The port is taken. If a group is forming there, this process is its second rank 0: everybody
  // must hear of it, or the first one would wait for ranks that never come.
  void claim_rank0(const StoreIdentity& identity) const {
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

  std::vector<Neighbour> meet(const Deadline& deadline) {
    const Neighbour own{host_key(), allowed_cores(), settings_.transport, random_number()};
    std::vector<Neighbour> neighbours;
    for (const std::string& text : store_->exchange(own.to_wire(), deadline)) {
      neighbours.push_back(Neighbour::from_wire(text));
    }
    local_size_ = 0;
    for (std::size_t rank = 0; rank < neighbours.size(); ++rank) {
      if (neighbours[rank].host != own.host) continue;
      if (static_cast<int>(rank) == settings_.rank) local_rank_ = local_size_;
      ++local_size_;
    }
    for (std::size_t rank = 1; rank < neighbours.size(); ++rank) {
      if (neighbours[rank].transport == neighbours[0].transport) continue;
      fail(Code::invalid_argument,
           "LOCKSTEP_TRANSPORT must be the same on all ranks: rank 0 and rank {} differ", rank);
    }
    if (settings_.local_world_size && *settings_.local_world_size != local_size_) {
      fail(Code::invalid_argument,
           "LOCAL_WORLD_SIZE='{}', but {} of the {} ranks are on the host of rank {}",
           *settings_.local_world_size, local_size_, settings_.world_size, settings_.rank);
    }
    return neighbours;
  }

  bool use_shared_memory(const std::vector<Neighbour>& neighbours) const {
    if (settings_.transport == Transport::tcp) return false;
    for (std::size_t rank = 1; rank < neighbours.size(); ++rank) {
      if (neighbours[rank].host == neighbours[0].host) continue;
      if (settings_.transport == Transport::automatic) return false;
      fail(Code::unsupported,
           "LOCKSTEP_TRANSPORT=shm, but rank {} is not on the host of rank 0 (another machine, "
           "network or process namespace, or user)",
           rank);
    }
    return true;
  }

  void connect_arena(const Deadline& deadline) {
    const int ranks = settings_.world_size;
    SharedMemory memory;
    if (settings_.rank == 0) {
      memory = SharedMemory::create(Arena::bytes_for(ranks, kScratchBytes), false);
    }
    const std::string own = settings_.rank == 0 ? memory.address().to_wire() : "";
    const std::string first = store_->exchange(own, deadline)[0];
    if (settings_.rank != 0) {
      memory = SharedMemory::open(SharedMemory::Address::from_wire(first), false);
    }
    arena_ = std::make_unique<Arena>(std::move(memory), settings_.rank, ranks, kScratchBytes);
    // Rank 0 may not close its memory before all have opened it.
    store_->exchange("", deadline);
    transport_ = "shared memory";
  }

  void start(const std::vector<Neighbour>& neighbours) {
    Fabric fabric{settings_.rank, settings_.world_size, arena_.get(), {}};
    for (const auto& link : mesh_.links) fabric.links.push_back(link.get());
    EngineOptions options;
    options.operation_timeout = settings_.operation_timeout;
    options.stall_after = settings_.stall_after;
    options.record = {settings_.record_folder, fmt::format("{:016x}", neighbours[0].job), "world"};
    options.on_failure = [this](const Error& error) { store_->report(error); };
    const auto& own = neighbours[static_cast<std::size_t>(settings_.rank)].cores;
    const bool spare =
        settings_.compute_threads > 0 && settings_.compute_threads < static_cast<int>(own.size());
    if (arena_ && !spare) options.takeover = kTakeover;
    std::set<int> all;
    for (const Neighbour& neighbour : neighbours) {
      all.insert(neighbour.cores.begin(), neighbour.cores.end());
    }
    if (static_cast<int>(all.size()) >= settings_.world_size) options.spin = kSpin;
    engine_ = std::make_shared<Engine>(fabric, options);
    // The pointer itself: engine_ is empty already while the engine's destructor ends its thread.
    store_->listen({[engine = engine_.get()](const Error& error) { engine->break_with(error); },
                    [this, engine = engine_.get()](int rank, const std::string& how) {
                      if (mesh_.acceptor) mesh_.left(rank, how);
                      engine->peer_left(rank, how);
                    }});
    engine_->watch(store_->fd(), [this] { return store_->on_readable(); });
  }

  const int uncaught_ = std::uncaught_exceptions();
  std::uint64_t regions_ = 0;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<Arena> arena_;
  Mesh mesh_;
};

Group::Group(const Settings& settings) : impl_(std::make_unique<Impl>(settings)) {}
Group::~Group() = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;

int Group::rank() const {
  return impl_->settings_.rank;
}
int Group::size() const {
  return impl_->settings_.world_size;
}
int Group::local_rank() const {
  return impl_->local_rank_;
}
int Group::local_size() const {
  return impl_->local_size_;
}

void Group::all_reduce(TensorView tensor, Reduce reduce) {
  impl_->run(impl_->all_reduce(tensor, reduce));
}
void Group::broadcast(TensorView tensor, int root) {
  impl_->run(impl_->broadcast(tensor, root));
}
void Group::all_gather(TensorView output, TensorView input) {
  impl_->run(impl_->all_gather(output, input));
}
void Group::barrier() {
  impl_->run({});
}

AsyncGroup Group::async() {
  return AsyncGroup(impl_.get());
}
Work AsyncGroup::all_reduce(TensorView tensor, Reduce reduce) {
  return impl_->submit(impl_->all_reduce(tensor, reduce));
}
Work AsyncGroup::broadcast(TensorView tensor, int root) {
  return impl_->submit(impl_->broadcast(tensor, root));
}
Work AsyncGroup::all_gather(TensorView output, TensorView input) {
  return impl_->submit(impl_->all_gather(output, input));
}
Work AsyncGroup::barrier() {
  return impl_->submit({});
}

bool Group::poll() {
  return impl_->engine_ == nullptr || impl_->engine_->poll();
}
std::shared_ptr<SharedBlock> Group::allocate(std::size_t bytes) {
  return impl_->allocate(bytes);
}
void Group::abort(const std::string& why) {
  if (impl_->engine_ != nullptr) impl_->abort(why);
}
std::vector<std::string> Group::exchange(const std::string& text) {
  return impl_->exchange(text);
}
std::string Group::transport_name() const {
  return impl_->transport_;
}
std::int64_t Group::bytes_reduced() const {
  return impl_->engine_ == nullptr ? 0 : impl_->engine_->bytes_reduced();
}

Group init() {
  return Group(Settings::from_environment());
}

}  // namespace lockstep
