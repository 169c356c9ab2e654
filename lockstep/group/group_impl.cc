#include "lockstep/group/group_impl.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "lockstep/engine/execution.h"
#include "lockstep/group/shared_block.h"
#include "lockstep/plan/cutting.h"
#include "lockstep/transport/tcp/stream_link.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::size_t kExchangeBytesMax = 16 << 20;
// Where every core computes, the progress thread leaves an operation to the computing thread's
// polls for so long before it takes the core.
constexpr std::chrono::milliseconds kTakeover{20};
// A sleeping core takes tens of microseconds to come back, in a virtual machine some hundred; ranks
// that compute the same are rarely further apart than this.
constexpr std::chrono::microseconds kSpin{2'000};
constexpr std::chrono::milliseconds kAfterLoss{100};

// What `call` throws, as text; empty when it succeeds.
template <class Call>
std::string text_of_failure(const Call& call) {
  try {
    call();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 + b;
  x = (x ^ (x >> 30)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

// The group of all ranks.
Group::Impl::Impl(const Settings& settings)
    : rank_(settings.rank), size_(settings.world_size), requests_(rank_, size_) {
  if (size_ == 1) return;
  world_ = std::make_shared<World>(settings);
  for (int rank = 0; rank < size_; ++rank) member_.members.push_back(rank);
  form([this](const std::string& text) {
    return world_->exchange(text, Deadline::after(world_->settings().join_timeout));
  });
  world_->listen(*engine_);
}

// A group of some ranks of `parent`. Every rank of the parent takes part in `exchange`.
Group::Impl::Impl(std::shared_ptr<Impl> parent, std::vector<int> members, int own, std::uint64_t id,
                  const Exchange& exchange)
    : rank_(own),
      size_(static_cast<int>(members.size())),
      requests_(rank_, size_),
      parent_(std::move(parent)),
      world_(parent_->world_) {
  member_ = {id, std::move(members), nullptr};
  form(exchange);
}

Group::Impl::~Impl() {
  if (world_ && !parent_) world_->say_farewell();
  if (member_.engine != nullptr) world_->leave(&member_);
  const auto failure = engine_ == nullptr ? std::nullopt : engine_->failure();
  engine_.reset();  // its thread uses everything else
  links_.clear();
  if (world_) world_->mesh().close(member_.group);
  // Whoever watches the processes should see the lost one end before those that only miss it.
  const bool lost = failure && failure->code() == Code::peer_lost;
  if (lost && !parent_) std::this_thread::sleep_for(kAfterLoss);
}

void Group::Impl::run(const Request& request) {
  if (size_ == 1) return run_by_oneself(request);
  engine_->run(request);
}
Work Group::Impl::submit(const Request& request) {
  if (size_ > 1) return engine_->submit(request);
  run_by_oneself(request);
  return {};
}

Texts Group::Impl::exchange(const std::string& text) {
  if (text.size() > kExchangeBytesMax) {
    fail(Code::invalid_argument, "exchange: {} bytes, at most {} are allowed", text.size(),
         kExchangeBytesMax);
  }
  if (!world_) return {text};
  if (parent_) return gather_texts(text);
  return world_->exchange(text, Deadline::after(world_->settings().operation_timeout));
}

void Group::Impl::abort(const std::string& why) {
  const Error error(Code::cancelled, fmt::format("rank {}: {}", rank_, why));
  world_->report(error);
  engine_->break_with(error);
}

// Every rank learns from the first exchange what all ask for and whether they have it, from the
// second whether all could open it; so all succeed or all throw the same.
std::shared_ptr<SharedBlock> Group::Impl::allocate(std::size_t bytes) {
  if (size_ == 1) return std::make_shared<PrivateBlock>(bytes);
  SharedMemory own;
  std::string address;
  const std::string problem = text_of_failure([&] {
    if (!shares_ || bytes == 0) return;
    own = SharedMemory::create(bytes, true);
    address = own.address().to_wire();
  });
  WireWriter writer;
  writer.put(static_cast<std::uint64_t>(bytes));
  writer.put_text(problem);
  writer.put_text(address);
  Texts addresses;
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
  if (!shares_ || bytes == 0) return std::make_shared<PrivateBlock>(bytes);
  return map_all(std::move(own), addresses, bytes);
}

std::optional<Group> Group::Impl::split(const std::shared_ptr<Impl>& parent, int colour, int key) {
  WireWriter writer;
  writer.put(static_cast<std::int32_t>(colour));
  writer.put(static_cast<std::int32_t>(key));
  std::vector<std::pair<int, int>> members;  // key, rank in the parent
  const Texts texts = parent->gather_texts(writer.bytes());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    WireReader reader(texts[rank]);
    const auto theirs = reader.get<std::int32_t>();
    const auto their_key = reader.get<std::int32_t>();
    if (theirs == colour) members.emplace_back(their_key, static_cast<int>(rank));
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [of_key, rank] : members) ranks.push_back(rank);
  return form_part(parent, colour < 0 ? std::vector<int>() : ranks);
}

std::optional<Group> Group::Impl::subgroup(const std::shared_ptr<Impl>& parent,
                                           const std::vector<int>& ranks) {
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent->size_ || !seen.insert(rank).second) {
      fail(Code::invalid_argument, "subgroup: {} {}", rank,
           seen.contains(rank) ? "is listed twice"
                               : fmt::format("is not a rank (0..{})", parent->size_ - 1));
    }
  }
  WireWriter writer;
  for (const int rank : ranks) writer.put(static_cast<std::int32_t>(rank));
  const Texts texts = parent->gather_texts(writer.bytes());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    fail(Code::invalid_argument, "subgroup: rank 0 and rank {} list other ranks", rank);
  }
  return form_part(parent, seen.contains(parent->rank_) ? ranks : std::vector<int>());
}

// `ranks` of the parent that form this rank's part; empty: it is in none.
std::optional<Group> Group::Impl::form_part(const std::shared_ptr<Impl>& parent,
                                            const std::vector<int>& ranks) {
  const std::uint64_t id = mix(parent->member_.group, ++parent->parts_);
  const auto own = std::find(ranks.begin(), ranks.end(), parent->rank_) - ranks.begin();
  const Exchange exchange = [&](const std::string& text) {
    const Texts all = parent->gather_texts(text);
    Texts texts;
    for (const int rank : ranks) texts.push_back(all[static_cast<std::size_t>(rank)]);
    return texts;
  };
  if (ranks.empty()) {
    for (int i = 0; i < kExchanges && parent->world_; ++i) exchange("");
    return std::nullopt;
  }
  std::vector<int> members;
  for (const int rank : ranks) {
    members.push_back(parent->world_ ? parent->member_.members[static_cast<std::size_t>(rank)] : 0);
  }
  return Group(std::make_shared<Impl>(parent, members, static_cast<int>(own), id, exchange));
}

// exchange() by this group's own collectives.
Texts Group::Impl::gather_texts(const std::string& text) {
  if (size_ == 1) return {text};
  auto bytes = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size_));
  run(requests_.all_gather({counts.data(), size_, DType::i64}, {&bytes, 1, DType::i64}, {}));
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  std::string all(static_cast<std::size_t>(total), '\0');
  std::string own = text;
  run(requests_.all_gather({all.data(), total, DType::u8}, {own.data(), bytes, DType::u8}, counts));
  Texts texts;
  for (std::size_t rank = 0, at = 0; rank < counts.size(); ++rank) {
    texts.push_back(all.substr(at, static_cast<std::size_t>(counts[rank])));
    at += static_cast<std::size_t>(counts[rank]);
  }
  return texts;
}

std::shared_ptr<SharedBlock> Group::Impl::map_all(SharedMemory own, const Texts& addresses,
                                                  std::size_t bytes) {
  std::vector<SharedMemory> memories(addresses.size());
  memories[static_cast<std::size_t>(rank_)] = std::move(own);
  const std::string problem = text_of_failure([&] {
    for (const int rank : local_) {
      if (rank == rank_) continue;
      const auto index = static_cast<std::size_t>(rank);
      memories[index] =
          SharedMemory::open(SharedMemory::Address::from_wire(addresses[index]), true);
    }
  });
  const auto problems = exchange(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) fail(Code::io, "allocate: rank {}: {}", rank, problems[rank]);
  }
  return std::make_shared<ArenaBlock>(std::move(memories), rank_, bytes, ++regions_, engine_);
}

void Group::Impl::set_runner(Runner runner) {
  if (!engine_) return;
  engine_->set_takeover(runner == Runner::caller ? kTakeover : std::chrono::milliseconds(0));
}

Runner Group::Impl::runner() const {
  const bool waits = engine_ && engine_->takeover().count() > 0;
  return waits ? Runner::caller : Runner::progress_thread;
}

// Connects the members. Errors are told to the others.
void Group::Impl::form(const Exchange& exchange) {
  try {
    find_hosts();
    if (world_) {
      world_->mesh().open(member_.group);
      links_ = world_->mesh().links(member_.group, member_.members, rank_);
    }
    if (local_.size() > 1) {
      connect_arena(exchange);
    } else {
      for (int i = 0; i < kExchanges; ++i) exchange("");
    }
    if (size_ > 1) start();
  } catch (const Error& error) {
    if (world_) world_->report(error);
    throw;
  }
}

const Neighbour& Group::Impl::neighbour(int rank) const {
  const auto member = member_.members[static_cast<std::size_t>(rank)];
  return world_->neighbours()[static_cast<std::size_t>(member)];
}

// Ranks of one host share memory, unless they shall not.
void Group::Impl::find_hosts() {
  std::map<std::string, int> numbers;
  const bool apart = world_ && world_->settings().transport == Transport::tcp;
  for (int rank = 0; rank < size_ && world_; ++rank) {
    const auto next = static_cast<int>(numbers.size());
    hosts_.push_back(numbers.try_emplace(neighbour(rank).host, next).first->second);
  }
  local_size_ = 0;
  for (int rank = 0; rank < size_ && world_; ++rank) {
    if (hosts_[static_cast<std::size_t>(rank)] != hosts_[static_cast<std::size_t>(rank_)]) continue;
    if (rank == rank_) local_rank_ = local_size_;
    ++local_size_;
    if (!apart || rank == rank_) local_.push_back(rank);
  }
  if (!world_) local_size_ = 1;
  for (int rank = 0; rank < size_ && apart; ++rank) hosts_[static_cast<std::size_t>(rank)] = rank;
  const std::set<int> different(hosts_.begin(), hosts_.end());
  shares_ = different.size() < hosts_.size();
  if (size_ > 1) {
    transport_ = different.size() == 1 ? "shared memory"
                 : shares_             ? "shared memory and tcp"
                                       : "tcp";
  }
}

void Group::Impl::connect_arena(const Exchange& exchange) {
  const auto ranks = static_cast<int>(local_.size());
  SharedMemory memory;
  const bool first = local_[0] == rank_;
  if (first) memory = SharedMemory::create(Arena::bytes_for(ranks, kScratchBytes), false);
  const Texts addresses = exchange(first ? memory.address().to_wire() : "");
  if (!first) {
    const std::string& address = addresses[static_cast<std::size_t>(local_[0])];
    memory = SharedMemory::open(SharedMemory::Address::from_wire(address), false);
  }
  const auto index = std::find(local_.begin(), local_.end(), rank_) - local_.begin();
  arena_ =
      std::make_unique<Arena>(std::move(memory), static_cast<int>(index), ranks, kScratchBytes);
  // The first rank may not close its memory before all have opened it.
  exchange("");
  for (std::size_t i = 0; i < local_.size(); ++i) {
    if (local_[i] == rank_) continue;
    const Channel channel(arena_.get(), static_cast<int>(index), static_cast<int>(i));
    links_[static_cast<std::size_t>(local_[i])] =
        std::make_unique<StreamLink>(Stream(channel), rank_, local_[i], describe);
  }
}

// Every rank of this host has a core, also where they share no memory.
bool Group::Impl::cores_suffice() const {
  std::set<int> cores;
  for (int rank = 0; rank < size_; ++rank) {
    if (neighbour(rank).host != neighbour(rank_).host) continue;
    cores.insert(neighbour(rank).cores.begin(), neighbour(rank).cores.end());
  }
  return static_cast<int>(cores.size()) >= local_size_;
}

void Group::Impl::start() {
  Fabric fabric;
  fabric.rank = rank_;
  fabric.ranks = size_;
  fabric.hosts = hosts_;
  fabric.local = local_;
  fabric.arena = arena_.get();
  fabric.scratch_bytes = kScratchBytes;
  for (const auto& link : links_) fabric.links.push_back(link.get());
  const Settings& settings = world_->settings();
  EngineOptions options;
  options.operation_timeout = settings.operation_timeout;
  options.stall_after = settings.stall_after;
  options.record = {settings.record_folder, world_->job_name(),
                    parent_ ? fmt::format("group-{:08x}", member_.group >> 32) : "world"};
  options.on_failure = [world = world_.get()](const Error& error) { world->report(error); };
  options.planner.prices = world_->neighbours()[0].prices;
  options.planner.order = settings.order;
  options.planner.forced = settings.algorithms;
  const auto& own = neighbour(rank_).cores;
  const bool spare =
      settings.compute_threads > 0 && settings.compute_threads < static_cast<int>(own.size());
  if (arena_ && !spare) options.takeover = kTakeover;
  options.spin = cores_suffice() ? kSpin : std::chrono::microseconds(0);
  engine_ = std::make_shared<Engine>(fabric, options);
  member_.engine = engine_.get();
  world_->enter(&member_);
}

}  // namespace lockstep
