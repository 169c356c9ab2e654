// Reducer: averages gradients over a group while more of them are still being computed. It knows
// counts and types, no tensor library.
//
// Gradients live in slots of buckets; a bucket is reduced as soon as all its gradients are there
// and all buckets before it are under way, so that every rank launches in the same order. Buckets
// are filled from the last parameter to the first, the order in which backward produces them.
//
//   idle ──begin──▶ collecting ──ready × n──▶ collecting ──finish──▶ idle
//
// Thread rule: one call at a time (the caller locks).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

struct Gradient {
  std::string name;  // for messages
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

// Which gradients travel together. Pure.
struct Bucket {
  DType dtype = DType::f32;
  std::size_t offset_bytes = 0;  // in the block
  std::int64_t count = 0;        // elements, padding between gradients included
  std::vector<std::size_t> gradients;
};
struct BucketPlan {
  std::vector<Bucket> buckets;            // in the order of launches
  std::vector<std::size_t> offset_bytes;  // of each gradient, in the block
  std::vector<std::size_t> bucket_of;     // each gradient's
  std::size_t block_bytes = 0;
};
// A bucket holds one type and at most `bucket_bytes_max`; a larger gradient has one of its own.
BucketPlan plan_buckets(const std::vector<Gradient>& gradients, std::int64_t bucket_bytes_max);

class Reducer {
 public:
  // Collective: allocates the block.
  Reducer(Group& group, std::vector<Gradient> gradients, std::int64_t bucket_bytes_max);
  ~Reducer() { abandon(); }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Where gradient `index` lives, 64-byte aligned.
  std::byte* slot(std::size_t index) const;
  // The memory of all slots; who keeps a slot beyond the reducer's life keeps this.
  const std::shared_ptr<SharedBlock>& block() const { return block_; }
  std::size_t bucket_count() const { return plan_.buckets.size(); }

  bool collecting() const { return collecting_; }
  void begin();
  // Gradient `index` stands in its slot. Launches its bucket if it was the last, and moves what is
  // under way. Throws Error(invalid_argument) naming the gradient when it was ready already.
  void ready(std::size_t index);
  bool is_ready(std::size_t index) const { return ready_[index]; }
  // All gradients are ready. Returns when every slot holds the mean over the ranks.
  void finish();
  // Forgets a pass that could not be finished. If buckets of it were under way, the ranks are no
  // longer in step: that breaks the group.
  void abandon();

  // Of the last finished pass.
  double exposed_ms() const { return exposed_ms_; }
  std::int64_t bytes_reduced() const { return static_cast<std::int64_t>(payload_bytes_); }

 private:
  using Clock = std::chrono::steady_clock;

  void launch_ready();

  Group& group_;
  const std::vector<Gradient> gradients_;
  const BucketPlan plan_;
  const std::shared_ptr<SharedBlock> block_;
  std::size_t payload_bytes_ = 0;

  bool collecting_ = false;
  std::vector<bool> ready_;
  std::vector<std::size_t> missing_;  // gradients a bucket still waits for
  std::size_t launched_ = 0;          // buckets
  std::vector<Work> works_;
  Clock::duration exposed_{};
  double exposed_ms_ = 0;
};

}  // namespace lockstep
