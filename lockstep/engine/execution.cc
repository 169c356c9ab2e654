#include "lockstep/engine/execution.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

std::string describe(const Announcement& operation) {
  const auto kind = static_cast<Operation>(operation.operation);
  std::string what;
  if (kind == Operation::all_reduce) what = fmt::format("{} of ", to_string(operation.reduce));
  if (kind == Operation::broadcast) what = fmt::format("from root {} of ", operation.root);
  if (kind != Operation::barrier) {
    what = fmt::format(" ({}{}[{}]{})", what, to_string(operation.dtype), operation.count,
                       static_cast<Needs>(operation.needs) == Needs::shared_data
                           ? fmt::format(" in shared memory at {:#x}", operation.place)
                           : "");
  }
  return fmt::format("{} number {}{}", to_string(kind), operation.sequence, what);
}

Execution::Execution(const Request& request, std::shared_ptr<const Plan> plan,
                     const Announcement& announcement, const Fabric& fabric,
                     const SharedRegion* region, std::byte* private_scratch)
    : request_(request),
      plan_(std::move(plan)),
      announcement_(announcement),
      fabric_(fabric),
      region_(region),
      region_offset_bytes_(
          region == nullptr
              ? 0
              : static_cast<std::size_t>(static_cast<std::byte*>(request.data.data) -
                                         region->by_rank[static_cast<std::size_t>(fabric.rank)])),
      private_scratch_(private_scratch),
      element_bytes_(size_of(request.data.dtype)) {
  if (fabric_.arena != nullptr) return;
  for (const Link* link : fabric_.links) {
    sends_due_.push_back(link == nullptr ? 0 : link->sent());
    receives_due_.push_back(link == nullptr ? 0 : link->received());
  }
}

bool Execution::advance() {
  // Peers read the announcement after the first barrier only, so it may be written this late.
  if (next_ == 0 && fabric_.arena != nullptr && !at_barrier_)
    fabric_.arena->announce(announcement_);
  if (fabric_.arena == nullptr) progress_links();
  while (next_ < plan_->steps.size()) {
    if (!step(plan_->steps[next_])) return false;
    ++next_;
  }
  return fabric_.arena != nullptr || links_idle();
}

bool Execution::step(const Step& step) {
  switch (step.kind) {
    case StepKind::copy:
      copy_bytes(resolve(step.destinations[0]), resolve(step.sources[0]), bytes_of(step.sources[0]),
                 step.destinations[0].rank != fabric_.rank);
      return true;
    case StepKind::reduce:
      destinations_.clear();
      sources_.clear();
      for (const Location& to : step.destinations) destinations_.push_back(resolve(to));
      for (const Location& from : step.sources) sources_.push_back(resolve(from));
      reduce(destinations_, sources_, step.sources[0].range.count, request_.data.dtype,
             request_.reduce, fabric_.ranks);
      return true;
    case StepKind::barrier:
      return pass_barrier();
    case StepKind::send: {
      const std::span<const std::byte> bytes(resolve(step.sources[0]), bytes_of(step.sources[0]));
      fabric_.links[static_cast<std::size_t>(step.peer)]->send(bytes, announcement_);
      ++sends_due_[static_cast<std::size_t>(step.peer)];
      return true;
    }
    case StepKind::receive: {
      const auto peer = static_cast<std::size_t>(step.peer);
      fabric_.links[peer]->receive({resolve(step.destinations[0]), bytes_of(step.destinations[0])},
                                   announcement_);
      receives_.push_back({step.peer, ++receives_due_[peer]});
      return true;
    }
    case StepKind::wait:
      progress_links();
      return landed(step.receives);
  }
  return true;
}

bool Execution::pass_barrier() {
  if (!at_barrier_) {
    barrier_ = fabric_.arena->arrive();
    at_barrier_ = true;
  }
  laggard_ = fabric_.arena->laggard(barrier_);
  if (laggard_ >= 0) return false;
  at_barrier_ = false;
  if (!agreed_) check_agreement();
  agreed_ = true;
  return true;
}

void Execution::check_agreement() const {
  for (int rank = 0; rank < fabric_.ranks; ++rank) {
    const Announcement theirs = fabric_.arena->announced(rank, announcement_.sequence);
    if (theirs == announcement_) continue;
    fail(Code::invalid_argument, "the ranks do not agree: rank {} is in {}, rank {} in {}",
         fabric_.rank, describe(announcement_), rank, describe(theirs));
  }
}

bool Execution::landed(std::int64_t receives) {
  for (; landed_ < static_cast<std::size_t>(receives); ++landed_) {
    const Receive& receive = receives_[landed_];
    const Link& link = *fabric_.links[static_cast<std::size_t>(receive.peer)];
    if (link.received() < receive.number) return false;
  }
  return true;
}

bool Execution::links_idle() {
  progress_links();
  for (std::size_t peer = 0; peer < fabric_.links.size(); ++peer) {
    const Link* link = fabric_.links[peer];
    if (link != nullptr && link->sent() < sends_due_[peer]) return false;
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
  for (int rank = 0; rank < fabric_.ranks; ++rank) {
    if (fabric_.arena != nullptr) {
      if (at_barrier_ && !fabric_.arena->arrived(rank, barrier_)) ranks.push_back(rank);
      continue;
    }
    const auto peer = static_cast<std::size_t>(rank);
    const Link* link = fabric_.links[peer];
    if (link == nullptr) continue;
    if (link->received() < receives_due_[peer] || link->sent() < sends_due_[peer]) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::uint64_t Execution::moves() const {
  std::uint64_t moves = next_;
  for (const Link* link : fabric_.links) {
    if (link != nullptr) moves += static_cast<std::uint64_t>(link->sent() + link->received());
  }
  return moves;
}

std::byte* Execution::resolve(const Location& at) const {
  const auto offset = static_cast<std::size_t>(at.range.begin) * element_bytes_;
  switch (at.space) {
    case Space::data:
      if (at.rank == fabric_.rank) return static_cast<std::byte*>(request_.data.data) + offset;
      return region_->by_rank[static_cast<std::size_t>(at.rank)] + region_offset_bytes_ + offset;
    case Space::input:
      return static_cast<std::byte*>(request_.input.data) + offset;
    case Space::scratch:
      if (fabric_.arena != nullptr) return fabric_.arena->scratch(at.rank) + offset;
      return private_scratch_ + offset;
  }
  return nullptr;
}

std::size_t Execution::bytes_of(const Location& at) const {
  return static_cast<std::size_t>(at.range.count) * element_bytes_;
}

}  // namespace lockstep
