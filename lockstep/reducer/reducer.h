// Reducer: averages gradients over a group while more of them are still being computed (Li et al.,
// "PyTorch Distributed", VLDB 2020). It knows counts and types, no tensor library.
//
// Gradients live in slots of buckets; a bucket is reduced as soon as all its gradients are there
// and all buckets before it are under way, so that every rank launches in the same order. In the
// first pass that is the reverse of the gradients' order; after it, the order in which rank 0's
// gradients came, for good.
//
//   idle ──begin──▶ collecting ──(ready | absent) × n──▶ collecting ──finish──▶ idle
//
// What nobody produces: an absent gradient contributes what stands in its slot. One number, which
// travels with the last bucket, says whether any rank lacked any; only then are the ranks' lists
// compared, so that a pass in which nothing is missing pays for one element more.
//
// Who reduces while backward computes (Runner) is measured: some passes go one way, some the other,
// and the ranks keep the faster.
//
// Thread rule: one call at a time (the caller locks).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/reducer/buckets.h"
#include "lockstep/reducer/communication_hook.h"
#include "lockstep/reducer/runner_trial.h"

namespace lockstep {

struct ReducerOptions {
  BucketLimits buckets;
  // Measure who shall run the buckets; else the group's own choice stays.
  bool choose_runner = true;
  // Look for infinities and NaN in what is reduced.
  bool check_finite = true;
};

// What the sum over the ranks is divided by.
enum class Divisor : std::uint8_t {
  ranks,       // all of the group
  live_ranks,  // those that have a part in this pass
  weights,     // the sum of their weights
};

// How this rank takes part in a pass. Where weights or absence matter, the ranks tell each other
// ahead of the first bucket (`announced`, the same everywhere): one small all_gather that nobody
// waits for before a bucket is complete.
struct Part {
  Divisor divisor = Divisor::ranks;
  bool announced = false;
  bool live = true;         // has data; else it only answers the others
  std::int64_t weight = 1;  // samples, tokens …; at least 0
  // Where ranks are counted: each stands for the mean of so many passes.
  std::int64_t micro_passes = 1;
};

// When a bucket was complete on this rank, under way, and seen to be done: since begin().
struct BucketTimes {
  double ready_ms = 0;
  double launch_ms = 0;
  double done_ms = 0;
  std::int64_t bytes = 0;
};

class Reducer {
 public:
  // Collective: allocates the block.
  Reducer(Group& group, std::vector<Gradient> gradients, const ReducerOptions& options);
  ~Reducer() { abandon(); }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Where gradient `index` lives, 64-byte aligned; until layout() changes.
  std::byte* slot(std::size_t index) const;
  // The memory of all slots; who keeps a slot beyond the reducer's life keeps this.
  const std::shared_ptr<SharedBlock>& block() const { return block_; }
  // Grows when the slots have moved (at the end of the first pass, with what they hold).
  int layout() const { return layout_; }
  std::size_t bucket_count() const { return plan_.buckets.size(); }
  const std::vector<Gradient>& gradients() const { return gradients_; }

  // Collective from the next pass on. Called from the last to the first, so that the one that was
  // added last sees a bucket first. None: gradients are reduced as they are.
  void set_hooks(std::vector<CommunicationHook> hooks) { hooks_ = std::move(hooks); }

  bool collecting() const { return collecting_; }
  void begin(const Part& part = {});
  // Gradient `index` stands in its slot. Launches its bucket if it was the last, and moves what is
  // under way. Throws Error(invalid_argument) naming the gradient when it was ready already.
  void ready(std::size_t index);
  // The same for one that this rank has not produced. Its slot is added all the same.
  void absent(std::size_t index);
  bool is_ready(std::size_t index) const { return ready_[index]; }
  // All gradients are ready or absent. Returns when every slot holds the mean over the ranks.
  void finish();
  // Forgets a pass that could not be finished. If buckets of it were under way, the ranks are no
  // longer in step: that breaks the group.
  void abandon();

  // For a rank that has no data: whether another has, in the pass that begin() began. If not, the
  // pass is over, on all ranks.
  bool anybody_live();
  // Of an announced pass that has begun: the first rank that has data; -1: none.
  int first_live();
  // What the sums of this pass are divided by.
  std::int64_t divisor();

  // Of the last finished pass.
  //
  // Whether any rank produced gradient `index`.
  bool produced(std::size_t index) const { return !someone_lacked_ || produced_[index] != 0; }
  // An infinity or NaN was in the reduced gradients; the same on all ranks. Not looked for in a
  // group of one.
  bool not_finite() const { return not_finite_; }
  // Collective, if not_finite(): the first gradient that has one, and who brought it, for people.
  std::string describe_not_finite();
  // Time in which this thread reduced or waited, and the part of it at the end, in finish().
  double exposed_ms() const { return exposed_ms_; }
  double finish_ms() const { return finish_ms_; }
  std::int64_t bytes_reduced() const { return payload_bytes_; }
  const std::vector<BucketTimes>& bucket_times() const { return times_; }
  // Who runs the buckets; set when the trial is over.
  std::optional<Runner> chosen_runner() const { return trial_.chosen(); }

 private:
  using Clock = std::chrono::steady_clock;

  void mark(std::size_t index);
  void launch_ready();
  void launch(std::size_t index);
  Reduction reduce(std::size_t hook, const GradientBucket& bucket);
  void see_done();
  void wait_for_announcement();
  void write_status(bool lacks);
  bool read_status();
  void compare_finite();
  void compare_produced();
  void adopt_order();
  double since_begin_ms() const;

  // Constant after construction.
  Group& group_;
  const std::vector<Gradient> gradients_;
  const BucketLimits limits_;
  const bool check_finite_;
  std::int64_t payload_bytes_ = 0;

  BucketPlan plan_;
  std::shared_ptr<SharedBlock> block_;
  int layout_ = 0;
  std::vector<CommunicationHook> hooks_;
  RunnerTrial trial_;

  // Of the pass under way.
  bool collecting_ = false;
  Part part_;
  std::vector<std::int64_t> announced_;  // by rank: its weight; -1: not live
  std::int64_t own_announcement_ = 0;
  Work announcement_;
  bool is_announced_ = false;
  std::int64_t divisor_ = 0;
  std::vector<bool> ready_;
  std::vector<std::uint8_t> produced_;
  std::size_t absent_count_ = 0;
  std::vector<std::size_t> arrival_;  // of the first pass
  std::vector<std::size_t> missing_;  // gradients a bucket still waits for
  std::size_t launched_ = 0;          // buckets
  std::size_t done_ = 0;
  std::vector<Reduction> reductions_;
  std::vector<NotFinite> watches_;  // by bucket
  Work status_work_;                // where the status did not travel in the bucket itself
  Clock::time_point begun_;
  Clock::duration exposed_{};

  // Of the last finished pass.
  bool someone_lacked_ = false;
  bool not_finite_ = false;
  std::int64_t passes_ = 0;
  double exposed_ms_ = 0;
  double finish_ms_ = 0;
  std::vector<BucketTimes> times_;
};

}  // namespace lockstep
