#include "lockstep/engine/execution.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/env/cpu.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

namespace {

static_assert(kPairwiseOperation == static_cast<std::uint8_t>(Operation::send));

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

constexpr std::size_t kPastCacheBytesMin = 8192;

}  // namespace

void run_by_oneself(const Request& request) {
  const auto count = request.counts.empty() ? request.count : request.counts[0];
  const auto bytes = static_cast<std::size_t>(count) * size_of(request.dtype);
  if (request.input != nullptr && request.input != request.data && bytes > 0) {
    std::memmove(request.data, request.input, bytes);
  }
  if (request.mean_of > 1) {
    const Source source{request.data};
    reduce({&request.data, 1}, {&source, 1}, count, request.dtype, Reduce::mean, request.mean_of);
  }
  if (request.staged_data) request.staged_data->finish();
}

std::string describe(const Announcement& operation) {
  const auto kind = static_cast<Operation>(operation.operation);
  std::string what;
  if (kind == Operation::send) what = fmt::format("from rank {} of ", operation.root);
  if (has_root(kind)) {
    what +=
        fmt::format("{} root {} of ", kind == Operation::broadcast ? "from" : "at", operation.root);
  }
  if (reduces(kind)) what += fmt::format("{} of ", to_string(operation.reduce));
  if (kind != Operation::barrier) {
    const auto known = algorithms();
    const bool named = operation.place != 0 && operation.algorithm < known.size();
    what = fmt::format(" ({}{}[{}]{}{})", what, to_string(operation.dtype), operation.count,
                       operation.detail == 0 ? "" : " in parts",
                       named ? fmt::format(" in shared memory at {:#x}", operation.place) : "");
  }
  return fmt::format("{} number {}{}", to_string(kind), operation.sequence, what);
}

Execution::Execution(const Fabric& fabric)
    : fabric_(fabric), local_index_(static_cast<std::size_t>(fabric.ranks), -1) {
  for (std::size_t i = 0; i < fabric.local.size(); ++i) {
    local_index_[static_cast<std::size_t>(fabric.local[i])] = static_cast<int>(i);
  }
}

void Execution::start(const Request& request, const Plan& plan, const Announcement& announcement,
                      const Placement& data, const Placement& input, const Workspace& workspace) {
  request_ = &request;
  plan_ = &plan;
  announcement_ = announcement;
  data_ = data;
  input_ = input;
  workspace_ = workspace;
  element_bytes_ = size_of(request.dtype);
  partial_bytes_ = size_of(accumulation_type(request.dtype));
  uses_links_ = plan_->needs.messages;
  choose_scratch();
  next_ = 0;
  announced_ = at_barrier_ = agreed_ = false;
  receives_.clear();
  sends_.clear();
  landed_ = left_ = 0;
}

// A few bytes go along with the only barrier; others have scratch of their own.
void Execution::choose_scratch() {
  in_mail_ = false;
  if (!plan_->needs.shared_scratch || fabric_.arena == nullptr) return;
  const auto bytes = static_cast<std::size_t>(plan_->scratch_count) * element_bytes_;
  in_mail_ = plan_->barriers == 1 && bytes <= Arena::kMailBytes;
  if (in_mail_) {
    mail_ = fabric_.arena->next_barrier();
  } else {
    turn_ = fabric_.arena->next_turn();
  }
}

bool Execution::advance() {
  if (!announced_) {
    announced_ = true;
    const auto operation = static_cast<Operation>(announcement_.operation);
    if (fabric_.arena != nullptr && operation != Operation::send) {
      fabric_.arena->announce(announcement_);
    }
    if (operation == Operation::all_reduce || operation == Operation::reduce) {
      const bool apart = request_->input != nullptr && request_->input != request_->data;
      const auto bytes = static_cast<std::size_t>(request_->count) * element_bytes_;
      if (apart) copy_bytes(request_->data, request_->input, bytes);
    }
  }
  if (uses_links_) progress_links();
  while (next_ < plan_->steps.size()) {
    if (!step(plan_->steps[next_])) return false;
    ++next_;
  }
  return left(static_cast<std::int64_t>(sends_.size()));
}

bool Execution::step(const Step& step) {
  switch (step.kind) {
    case StepKind::copy: {
      const Location& to = plan_->destinations(step)[0];
      const Location& from = plan_->sources(step)[0];
      const std::size_t bytes = bytes_of(from);
      copy_bytes(resolve(to), resolve(from), bytes, stores_to(to, bytes, step.kind));
      return true;
    }
    case StepKind::reduce:
      reduce_step(step);
      return true;
    case StepKind::barrier:
      return pass_barrier();
    case StepKind::send: {
      const Location& from = plan_->sources(step)[0];
      Link& link = *fabric_.links[static_cast<std::size_t>(step.peer)];
      sends_.push_back({step.peer, link.send({resolve(from), bytes_of(from)}, announcement_)});
      return true;
    }
    case StepKind::receive: {
      const Location& to = plan_->destinations(step)[0];
      Link& link = *fabric_.links[static_cast<std::size_t>(step.peer)];
      receives_.push_back({step.peer, link.receive({resolve(to), bytes_of(to)}, announcement_)});
      return true;
    }
    case StepKind::wait:
      return landed(step.messages);
    case StepKind::flush:
      return left(step.messages);
  }
  return true;
}

void Execution::reduce_step(const Step& step) {
  destinations_.clear();
  sources_.clear();
  for (const Location& from : plan_->sources(step)) {
    sources_.push_back({resolve(from), from.space == Space::partial, from.level});
  }
  const auto destinations = plan_->destinations(step);
  const std::int64_t count = plan_->sources(step)[0].range.count;
  if (destinations[0].space == Space::partial) {
    reduce_partial(resolve(destinations[0]), sources_, count, request_->dtype, request_->reduce);
    return;
  }
  for (const Location& to : destinations) destinations_.push_back(resolve(to));
  const std::int64_t mean_of = request_->mean_of > 0 ? request_->mean_of : fabric_.ranks;
  const auto stores =
      stores_to(destinations.back(), static_cast<std::size_t>(count) * element_bytes_, step.kind);
  int not_finite = -1;
  reduce(destinations_, sources_, count, request_->dtype, request_->reduce, mean_of, stores,
         request_->watch != nullptr ? &not_finite : nullptr);
  if (not_finite >= 0) note_not_finite(static_cast<std::size_t>(not_finite));
}

// The sources of a finished sum are all ranks' contributions, in rank order.
void Execution::note_not_finite(std::size_t source) {
  if (request_->watch->first >= 0) return;
  NotFinite seen{0, 0};
  if (source < sources_.size()) {
    for (std::size_t s = 0; s < source; ++s) seen.first += 1 << sources_[s].level;
    seen.count = std::min(1 << sources_[source].level, fabric_.ranks - seen.first);
  }
  *request_->watch = seen;
}

bool Execution::pass_barrier() {
  if (fabric_.arena == nullptr) return true;  // alone on this host
  if (!at_barrier_) {
    barrier_ = fabric_.arena->arrive(agreed_ ? 0 : announcement_.fingerprint());
    at_barrier_ = true;
  }
  laggard_ = fabric_.arena->laggard(barrier_);
  if (laggard_ >= 0) return false;
  at_barrier_ = false;
  if (!agreed_) check_agreement();
  agreed_ = true;
  return true;
}

void Execution::disagree(int rank, const Announcement& theirs) const {
  fail(Code::invalid_argument, "the ranks do not agree: rank {} is in {}, rank {} in {}{}",
       fabric_.rank, describe(announcement_), rank, describe(theirs),
       theirs.algorithm == announcement_.algorithm ? "" : " (by another algorithm)");
}

void Execution::check_agreement() const {
  for (std::size_t i = 0; i < fabric_.local.size(); ++i) {
    if (fabric_.arena->agrees(static_cast<int>(i), barrier_)) continue;
    const auto theirs = fabric_.arena->announced(static_cast<int>(i), announcement_.sequence);
    if (theirs && *theirs != announcement_) disagree(fabric_.local[i], *theirs);
    fail(Code::invalid_argument, "the ranks do not agree: rank {} is in {}, rank {} in another",
         fabric_.rank, describe(announcement_), fabric_.local[i]);
  }
}

void Execution::check_neighbours() const {
  if (fabric_.arena == nullptr ||
      static_cast<Operation>(announcement_.operation) == Operation::send) {
    return;
  }
  for (std::size_t i = 0; i < fabric_.local.size(); ++i) {
    const auto theirs = fabric_.arena->announced(static_cast<int>(i), announcement_.sequence);
    const bool same_number = theirs && theirs->sequence == announcement_.sequence;
    if (same_number && *theirs != announcement_) disagree(fabric_.local[i], *theirs);
  }
}

void Execution::ask_peers() const {
  if (!uses_links_ || announcement_.is_pairwise()) return;
  for (std::size_t i = landed_; i < receives_.size(); ++i) {
    Link& link = *fabric_.links[static_cast<std::size_t>(receives_[i].peer)];
    if (link.received() < receives_[i].number) link.ask(announcement_);
  }
}

bool Execution::landed(std::int64_t receives) {
  bool tried = false;
  for (; landed_ < static_cast<std::size_t>(receives); ++landed_) {
    const Transfer& receive = receives_[landed_];
    Link& link = *fabric_.links[static_cast<std::size_t>(receive.peer)];
    if (link.received() >= receive.number) continue;
    if (!tried) progress_links();
    tried = true;
    if (link.received() < receive.number) return false;
  }
  return true;
}

bool Execution::left(std::int64_t sends) {
  bool tried = false;
  for (; left_ < static_cast<std::size_t>(sends); ++left_) {
    const Transfer& send = sends_[left_];
    Link& link = *fabric_.links[static_cast<std::size_t>(send.peer)];
    if (link.sent() >= send.number) continue;
    if (!tried) progress_links();
    tried = true;
    if (link.sent() < send.number) return false;
  }
  return true;
}

void Execution::progress_links() {
  for (Link* link : fabric_.links) {
    if (link != nullptr && link->wanted_events() != 0) link->progress();
  }
}

std::vector<int> Execution::blocked_on() const {
  std::vector<int> ranks;
  if (at_barrier_) {
    for (std::size_t i = 0; i < fabric_.local.size(); ++i) {
      if (!fabric_.arena->arrived(static_cast<int>(i), barrier_)) ranks.push_back(fabric_.local[i]);
    }
    return ranks;
  }
  const auto wait_for = [&](int peer) {
    if (std::find(ranks.begin(), ranks.end(), peer) == ranks.end()) ranks.push_back(peer);
  };
  for (std::size_t i = landed_; i < receives_.size(); ++i) {
    const Link& link = *fabric_.links[static_cast<std::size_t>(receives_[i].peer)];
    if (link.received() < receives_[i].number) wait_for(receives_[i].peer);
  }
  for (std::size_t i = left_; i < sends_.size(); ++i) {
    const Link& link = *fabric_.links[static_cast<std::size_t>(sends_[i].peer)];
    if (link.sent() < sends_[i].number) wait_for(sends_[i].peer);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::uint64_t Execution::moves() const {
  std::uint64_t moves = next_;
  for (const Link* link : fabric_.links) {
    if (link != nullptr) moves += static_cast<std::uint64_t>(link->sent() + link->received());
  }
  return moves;
}

// Scratch is written by one rank and read by another, again and again: where their cores share no
// cache, each line that one of them holds costs the other a way between them. Past the cache it
// costs the same everywhere: measured, 2 ranks, 64 KiB of a user's own, 6.5 µs, where through it
// they are 11 or 42; 1 MiB 64, against 47 or 600; 16 MiB 1.2 ms, against 1.6 or 9.5.
//
// In tensors each rank of a host fills or copies such a piece of everybody's. When all that is too
// much for the cache, its lines are read in vain before they are written. Where a sum is written
// they were read anyway: measured, cache of 32 MiB, all_gather of 16 MiB 0.5 ms past it
// against 1.4; all_reduce of 32 MiB 2.2 against 1.7, of 256 MiB 12.4 against 13.2.
Stores Execution::stores_to(const Location& to, std::size_t bytes, StepKind kind) const {
  if (bytes < kPastCacheBytesMin) return Stores::through_cache;
  const auto choose = [](bool past) { return past ? Stores::past_cache : Stores::through_cache; };
  if (to.space == Space::scratch) {
    return choose(plan_->needs.shared_scratch);
  }
  static const std::size_t cache = shared_cache_bytes();
  const std::size_t all = bytes * fabric_.local.size() * fabric_.local.size();
  if (kind == StepKind::copy) return choose(all >= cache / 2);
  return choose(to.rank != fabric_.rank && all >= 4 * cache);
}

std::byte* Execution::resolve(const Location& at) const {
  const auto begin = static_cast<std::size_t>(at.range.begin);
  const auto offset = begin * element_bytes_;
  const auto rank = static_cast<std::size_t>(at.rank);
  switch (at.space) {
    case Space::data:
      if (at.rank == fabric_.rank) return request_->data + offset;
      return data_.region->by_rank[rank] + data_.offset_bytes + offset;
    case Space::input:
      if (at.rank == fabric_.rank) return const_cast<std::byte*>(request_->input) + offset;
      return input_.region->by_rank[rank] + input_.offset_bytes + offset;
    case Space::scratch:
      if (plan_->needs.shared_scratch && fabric_.arena != nullptr) {
        const int index = local_index(at.rank);
        return (in_mail_ ? fabric_.arena->mail(index, mail_)
                         : fabric_.arena->scratch(index, turn_)) +
               offset;
      }
      return workspace_.scratch + offset;
    case Space::partial:
      return workspace_.partials + begin * partial_bytes_;
  }
  return nullptr;
}

std::size_t Execution::bytes_of(const Location& at) const {
  return static_cast<std::size_t>(at.range.count) *
         (at.space == Space::partial ? partial_bytes_ : element_bytes_);
}

}  // namespace lockstep
