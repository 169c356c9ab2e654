// all_reduce over several hosts: ranks of a host add what they share in memory before it leaves.
//
// Restrictions: ranks of a host share data, or (staged) scratch of a chunk. Hosts may be of any
// sizes and hold any ranks. Order: canonical: what leaves a host are the sums of whole blocks, one
// if its ranks are an aligned block (2 hosts × 2 ranks), more if they are scattered.
// Cost for H hosts of n bytes each: a host sends and receives 2n(H-1)/H, the least possible (a
// block counts once; unfinished sums of half types are twice as wide), all its ranks at once; two
// messages deep. Two chunks are under way.
//
// Rank r owns slice r of each chunk. For every slice that a rank elsewhere owns, one rank here (its
// counterpart) adds up this host's contributions, sends them to the owner, and gets the result back
// for everybody here. So on a host each slice is one rank's business, and needs no barrier.
#include <algorithm>
#include <functional>

#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/builder.h"
#include "lockstep/plan/hosts.h"

namespace lockstep {

namespace {

// Where a range of a rank's tensor stands during the operation.
using Place = std::function<Location(int rank, Range range)>;

class Hierarchy {
 public:
  Hierarchy(PlanBuilder& plan, const Shape& shape, std::int64_t scratch_begin)
      : plan_(plan), shape_(shape), hosts_(shape), scratch_begin_(scratch_begin) {
    for (int host = 0; host < hosts_.count(); ++host) {
      blocks_.push_back(blocks_of(hosts_.members(host), shape.ranks));
    }
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const bool remote = hosts_.of(rank) != hosts_.own();
      if (remote && hosts_.counterpart(rank, hosts_.own()) == shape.rank) served_.push_back(rank);
    }
    std::size_t incoming = 0;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host != hosts_.own()) incoming += blocks_[static_cast<std::size_t>(host)].size();
    }
    const auto outgoing = served_.size() * own_blocks().size();
    slots_ = static_cast<std::int64_t>(incoming + outgoing);
    slot_count_ = slice({0, std::min(shape.count, shape.chunk_count)}, 0).count;
    plan_.scratch_count(scratch_begin + 2 * slots_ * slot_count_);
    plan_.partial_count(2 * slots_ * slot_count_);
  }

  // Adds up this host's contributions to the slices of other hosts, and asks for theirs to its own.
  // `chunk` is the chunk's number, `range` its elements. Returns what to wait for.
  std::int64_t contribute(std::int64_t chunk, Range range, const Place& at) {
    std::int64_t slot = chunk % 2 * slots_;
    for (const int owner : served_) {
      const Range of_owner = slice(range, owner);
      for (const Block& block : own_blocks()) {
        Location value = at(block.begin, of_owner);
        if (block.end - block.begin > 1) {
          value = plan_.partial({slot * slot_count_, of_owner.count});
          std::vector<Location> sources;
          for (int rank = block.begin; rank < block.end; ++rank) {
            sources.push_back(at(rank, of_owner));
          }
          plan_.reduce({value}, sources);
        }
        plan_.send(owner, value);
        ++slot;
      }
    }
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.own()) continue;
      const int peer = hosts_.counterpart(shape_.rank, host);
      for (const Block& block : blocks_[static_cast<std::size_t>(host)]) {
        plan_.receive(peer, incoming(slot++, slice(range, shape_.rank).count, block));
      }
    }
    return plan_.receives();
  }

  // Adds up the own slice, once everything is there, and tells everybody.
  void settle(std::int64_t chunk, Range range, const Place& at) {
    const Range mine = slice(range, shape_.rank);
    std::vector<std::pair<int, Location>> values;  // by first rank
    std::vector<Location> destinations = {at(shape_.rank, mine)};
    for (const int rank : hosts_.members(hosts_.own())) {
      values.emplace_back(rank, at(rank, mine));
      if (rank != shape_.rank) destinations.push_back(at(rank, mine));
    }
    auto slot =
        chunk % 2 * slots_ + static_cast<std::int64_t>(served_.size() * own_blocks().size());
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.own()) continue;
      for (const Block& block : blocks_[static_cast<std::size_t>(host)]) {
        values.emplace_back(block.begin,
                            at_level(incoming(slot++, mine.count, block), block.level));
      }
    }
    std::sort(values.begin(), values.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Location> sources;
    for (const auto& [rank, value] : values) sources.push_back(value);
    plan_.reduce(destinations, sources);
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.own()) continue;
      plan_.send(hosts_.counterpart(shape_.rank, host), at(shape_.rank, mine));
    }
    for (const int owner : served_) plan_.receive(owner, at(shape_.rank, slice(range, owner)));
  }

  // Gives the results that came for everybody here to the others here.
  void distribute(Range range, const Place& at) {
    for (const int owner : served_) {
      for (const int rank : hosts_.members(hosts_.own())) {
        if (rank == shape_.rank) continue;
        plan_.copy(at(rank, slice(range, owner)), at(shape_.rank, slice(range, owner)));
      }
    }
  }

 private:
  const std::vector<Block>& own_blocks() const {
    return blocks_[static_cast<std::size_t>(hosts_.own())];
  }
  Range slice(Range range, int rank) const {
    return slice_of(range, shape_.ranks, rank, shape_.align_count);
  }
  Location incoming(std::int64_t slot, std::int64_t count, const Block& block) const {
    const Range at{slot * slot_count_, count};
    if (block.end - block.begin > 1) return plan_.partial(at);
    return plan_.scratch({scratch_begin_ + at.begin, at.count});
  }

  PlanBuilder& plan_;
  const Shape& shape_;
  const Hosts hosts_;
  const std::int64_t scratch_begin_;
  std::vector<std::vector<Block>> blocks_;  // by host
  std::vector<int> served_;                 // ranks elsewhere whose slices are this rank's here
  std::int64_t slots_ = 0;                  // of a chunk: outgoing, then incoming
  std::int64_t slot_count_ = 0;
};

}  // namespace

Plan all_reduce_hierarchical(const Shape& shape) {
  PlanBuilder plan("hierarchical", {.shared_data = true, .messages = true}, shape);
  Hierarchy hierarchy(plan, shape, 0);
  const Place at = [&](int rank, Range range) { return plan.data(rank, range); };
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  const auto range = [&](std::int64_t chunk) {
    return chunk_of({0, shape.count}, shape.chunk_count, chunk);
  };
  plan.barrier();
  std::int64_t contributions = chunks > 0 ? hierarchy.contribute(0, range(0), at) : 0;
  std::int64_t results = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const std::int64_t awaited = contributions;
    if (chunk > 0) {
      // The results are here, so the sums they are made of have left: their place is free.
      plan.wait(results);
      hierarchy.distribute(range(chunk - 1), at);
    }
    if (chunk + 1 < chunks) {
      contributions = hierarchy.contribute(chunk + 1, range(chunk + 1), at);
    }
    plan.wait(awaited);
    hierarchy.settle(chunk, range(chunk), at);
    results = plan.receives();
  }
  plan.wait_all();
  if (chunks > 0) hierarchy.distribute(range(chunks - 1), at);
  plan.barrier();
  return plan.take();
}

Plan all_reduce_hierarchical_staged(const Shape& shape) {
  PlanBuilder plan("hierarchical_staged", {.shared_scratch = true, .messages = true}, shape);
  Hierarchy hierarchy(plan, shape, shape.chunk_count);
  const std::int64_t chunks = chunks_in(shape.count, shape.chunk_count);
  if (chunks == 0) plan.barrier();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == 1) plan.expect(chunks);
    const Range range = chunk_of({0, shape.count}, shape.chunk_count, chunk);
    const Place at = [&](int rank, Range of) {
      return plan.scratch(rank, {of.begin - range.begin, of.count});
    };
    const Location staged = at(shape.rank, range);
    plan.copy(staged, plan.data(range));
    plan.barrier();
    plan.wait(hierarchy.contribute(chunk, range, at));
    hierarchy.settle(chunk, range, at);
    plan.wait_all();
    hierarchy.distribute(range, at);
    plan.flush(plan.sends());
    plan.barrier();
    plan.copy(plan.data(range), staged);
  }
  return plan.take();
}

}  // namespace lockstep
