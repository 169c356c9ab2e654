// The memory that Group::allocate returns.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/group/group.h"
#include "lockstep/transport/arena.h"

namespace lockstep {

// Memory of this process alone.
class PrivateBlock final : public SharedBlock {
 public:
  explicit PrivateBlock(std::size_t bytes);
  ~PrivateBlock() override;
  PrivateBlock(const PrivateBlock&) = delete;
  PrivateBlock& operator=(const PrivateBlock&) = delete;
  std::byte* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

// A block of each rank of this host, all mapped. It is known to the engine as long as it lives.
class ArenaBlock final : public SharedBlock {
 public:
  // `memories` by rank of the group; empty for ranks of other hosts.
  ArenaBlock(std::vector<SharedMemory> memories, int rank, std::size_t bytes, std::uint64_t id,
             const std::shared_ptr<Engine>& engine);
  ~ArenaBlock() override;
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

}  // namespace lockstep
