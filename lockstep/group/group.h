// Group: the ranks that reduce together, and everything they can do together.
//
// Every rank of the group must make the same calls in the same order, with equal counts, dtypes,
// reductions and roots. A call that does not match its peers' fails on all ranks, naming both
// sides. (send and receive are between two ranks: each pair keeps its own order.)
//
// Errors: every call throws lockstep::Error. What is refused on this rank alone, before anything
// moves (a root that is no rank, a tensor without memory), leaves the group usable. Every other
// error (a lost peer, a timeout, ranks that do not agree) breaks it: later calls fail at once with
// the cause.
//
// Results: contributions are added in one canonical order (plan/order.h), half types in f32, a mean
// divides once after the sum; so all ranks hold the same bits, and every transport, algorithm and
// placement of ranks on hosts gives the same bits.
//
// Tensors may lie in memory in any order (TensorView::strides): elements meet by their index. What
// is not row-major is copied to a row-major buffer and back.
//
// Thread rule: one thread at a time calls a group's operations (the order of calls is part of the
// program's meaning); Work and poll() may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

// Who moves an asynchronous operation on while nobody waits for it.
enum class Runner : std::uint8_t {
  caller,           // whoever calls poll() or wait(); the progress thread only after a long silence
  progress_thread,  // at once
};

// Elements of each rank's part, by rank. Read while the call is made only.
using Counts = std::span<const std::int64_t>;

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
  // Among the ranks of the group that are on this host.
  int local_rank() const;
  int local_size() const;

  // In place: each element becomes the reduction of that element on all ranks.
  void all_reduce(TensorView tensor, Reduce reduce = Reduce::sum);
  // A mean over something else than ranks: the sum, divided once.
  void all_reduce(TensorView tensor, MeanOf mean_of);
  // The same from input into output; both have the same count.
  void all_reduce(TensorView output, TensorView input, Reduce reduce = Reduce::sum);
  // The same for several tensors, each by itself, in place.
  void all_reduce(std::span<const TensorView> tensors, Reduce reduce = Reduce::sum);
  // root's tensor becomes the reduction; the others' stay as they are.
  void reduce(TensorView tensor, int root = 0, Reduce reduce = Reduce::sum);
  // In place: every rank's tensor becomes root's.
  void broadcast(TensorView tensor, int root = 0);
  void broadcast(std::span<const TensorView> tensors, int root = 0);
  // output becomes all ranks' inputs in rank order. `counts`: elements of each rank's input, the
  // same on all ranks; empty: all inputs are as long as this one. In place: input is this rank's
  // part of output.
  void all_gather(TensorView output, TensorView input, Counts counts = {});
  // output becomes this rank's part of the reduction of all ranks' inputs. `counts`: elements of
  // each part; empty: equal parts. In place: output is this rank's part of input.
  void reduce_scatter(TensorView output, TensorView input, Reduce reduce = Reduce::sum,
                      Counts counts = {});
  // root's output becomes all ranks' inputs in rank order; the others' outputs are not looked at.
  void gather(TensorView output, TensorView input, int root = 0, Counts counts = {});
  // output becomes this rank's part of root's input; the others' inputs are not looked at.
  void scatter(TensorView output, TensorView input, int root = 0, Counts counts = {});
  // Part r of output becomes what rank r holds for this rank in its input. Equal parts, or counts
  // of what comes from and goes to each rank.
  void all_to_all(TensorView output, TensorView input, Counts receive_counts = {},
                  Counts send_counts = {});
  // To one rank, which receives as many elements of the same type. send may return before.
  void send(TensorView tensor, int to);
  void receive(TensorView tensor, int from);
  // Returns when every rank has called it.
  void barrier();

  // Collective. The ranks that give the same colour form a group, numbered by key, then by rank
  // here. A negative colour: none, and nothing is returned. Costs a few small collectives; the new
  // group is independent of this one, but a failure of either is one of the whole job.
  std::optional<Group> split(int colour, int key = 0);
  // Collective: the ranks listed form a group, numbered in that order; the others get nothing.
  std::optional<Group> subgroup(const std::vector<int>& ranks);

  // The same calls, each returning a Work at once: `group.async().all_reduce(tensor)`.
  AsyncGroup async();

  // Moves operations under way as far as possible without blocking; true when none is left.
  // Costs well under a microsecond when there is nothing to do.
  bool poll();

  // Who runs asynchronous operations until somebody waits for them. Chosen when the group is made:
  // the caller where every core computes and all ranks are on one host, for there the progress
  // thread would only take a core from the thread that computes. A rank may choose for itself.
  void set_runner(Runner runner);
  Runner runner() const;

  // Collective, the same size everywhere. `bytes` of zeroed memory, 64-byte aligned. On a group
  // that cannot share memory (it spans hosts) the block is ordinary memory and works all the same.
  std::shared_ptr<SharedBlock> allocate(std::size_t bytes);

  // Collective. Each rank's text, in rank order; for control, not for bulk (at most 16 MiB a rank).
  std::vector<std::string> exchange(const std::string& text);

  // Breaks the group on all ranks: whatever is under way and whatever is called later fails with
  // Error(cancelled) that gives `why`. For when this rank can no longer stay in step.
  void abort(const std::string& why);

  // How the ranks of this group reach each other, for summaries: "shared memory", "tcp", or
  // "shared memory and tcp".
  std::string transport_name() const;
  // Payload bytes of all reductions so far on this rank.
  std::int64_t bytes_reduced() const;

 private:
  friend class AsyncGroup;
  class Impl;
  explicit Group(std::shared_ptr<Impl> impl);
  // Shared with its sub-groups, which stand on it: whoever ends last says farewell.
  std::shared_ptr<Impl> impl_;
};

// The asynchronous face of a group. The tensors must stay alive and untouched until the Work is
// done.
class AsyncGroup {
 public:
  Work all_reduce(TensorView tensor, Reduce reduce = Reduce::sum);
  // `not_finite`, unless null, must be as new, and live as long as the Work; it is left alone in a
  // group of one.
  Work all_reduce(TensorView tensor, MeanOf mean_of, NotFinite* not_finite = nullptr);
  Work all_reduce(TensorView output, TensorView input, Reduce reduce = Reduce::sum);
  Work all_reduce(std::span<const TensorView> tensors, Reduce reduce = Reduce::sum);
  Work reduce(TensorView tensor, int root = 0, Reduce reduce = Reduce::sum);
  Work broadcast(TensorView tensor, int root = 0);
  Work broadcast(std::span<const TensorView> tensors, int root = 0);
  Work all_gather(TensorView output, TensorView input, Counts counts = {});
  Work reduce_scatter(TensorView output, TensorView input, Reduce reduce = Reduce::sum,
                      Counts counts = {});
  Work gather(TensorView output, TensorView input, int root = 0, Counts counts = {});
  Work scatter(TensorView output, TensorView input, int root = 0, Counts counts = {});
  Work all_to_all(TensorView output, TensorView input, Counts receive_counts = {},
                  Counts send_counts = {});
  Work send(TensorView tensor, int to);
  Work receive(TensorView tensor, int from);
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
