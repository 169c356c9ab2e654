// Group: the ranks that reduce together, and everything they can do together.
//
// Every rank of the group must make the same calls in the same order, with equal counts, dtypes,
// reductions and roots. A call that does not match its peers' fails on all ranks, naming both
// sides.
//
// Errors: every call throws lockstep::Error. What is refused on this rank alone, before anything
// moves (a root that is no rank, a tensor without memory), leaves the group usable. Every other
// error (a lost peer, a timeout, ranks that do not agree) breaks it: later calls fail at once with
// the cause.
//
// Results: contributions are added in rank order, half types in f32, a mean divides once after the
// sum; so all ranks hold the same bits, and shared memory and TCP give the same bits.
//
// Thread rule: one thread at a time calls a group's operations (the order of calls is part of the
// program's meaning); Work and poll() may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/types.h"
#include "lockstep/engine/work.h"
#include "lockstep/group/settings.h"

namespace lockstep {

// Memory that the ranks of one host map together, so that a reduction over it copies nothing in or
// out. Every rank holds a block of its own; same sizes everywhere. Freed with the last handle.
class SharedBlock;

class AsyncGroup;

class Group {
 public:
  // Joins the job: blocks until all ranks of `settings` have joined, or fails within join_timeout
  // with the missing ranks named.
  explicit Group(const Settings& settings);
  ~Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;

  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;

  // In place: each element becomes the reduction of that element on all ranks.
  void all_reduce(TensorView tensor, Reduce reduce = Reduce::sum);
  // In place: every rank's tensor becomes root's.
  void broadcast(TensorView tensor, int root = 0);
  // output (size() × input.count elements) becomes all ranks' inputs in rank order.
  void all_gather(TensorView output, TensorView input);
  // Returns when every rank has called it.
  void barrier();

  // The same calls, each returning a Work at once: `group.async().all_reduce(tensor)`.
  AsyncGroup async();

  // Moves operations under way as far as possible without blocking; true when none is left.
  // Costs well under a microsecond when there is nothing to do.
  bool poll();

  // Collective, the same size everywhere. `bytes` of zeroed memory, 64-byte aligned. On a group
  // that cannot share memory (it spans hosts) the block is ordinary memory and works all the same.
  std::shared_ptr<SharedBlock> allocate(std::size_t bytes);

  // Collective. Each rank's text, in rank order; for control, not for bulk (at most 16 MiB a rank).
  std::vector<std::string> exchange(const std::string& text);

  // Breaks the group on all ranks: whatever is under way and whatever is called later fails with
  // Error(cancelled) that gives `why`. For when this rank can no longer stay in step.
  void abort(const std::string& why);

  // How the ranks of this group reach each other, for summaries: "shared memory" or "tcp".
  std::string transport_name() const;
  // Payload bytes of all reductions so far on this rank.
  std::int64_t bytes_reduced() const;

 private:
  friend class AsyncGroup;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The asynchronous face of a group. The tensors must stay alive and untouched until the Work is
// done.
class AsyncGroup {
 public:
  Work all_reduce(TensorView tensor, Reduce reduce = Reduce::sum);
  Work broadcast(TensorView tensor, int root = 0);
  Work all_gather(TensorView output, TensorView input);
  Work barrier();

 private:
  friend class Group;
  explicit AsyncGroup(Group::Impl* impl) : impl_(impl) {}
  Group::Impl* impl_;
};

class SharedBlock {
 public:
  virtual ~SharedBlock() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t bytes() const = 0;
};

// The group of all ranks, from RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT, as `lockstep run` and torchrun set them. With none of them set: a group of one.
Group init();

}  // namespace lockstep
