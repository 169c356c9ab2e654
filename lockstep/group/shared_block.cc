#include "lockstep/group/shared_block.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace lockstep {

namespace {
constexpr std::size_t kBlockAlignment = 64;
}  // namespace

PrivateBlock::PrivateBlock(std::size_t bytes)
    : bytes_(bytes),
      data_(static_cast<std::byte*>(
          ::operator new(std::max(bytes, std::size_t{1}), std::align_val_t(kBlockAlignment)))) {
  std::memset(data_, 0, bytes);
}

PrivateBlock::~PrivateBlock() {
  ::operator delete(data_, std::align_val_t(kBlockAlignment));
}

ArenaBlock::ArenaBlock(std::vector<SharedMemory> memories, int rank, std::size_t bytes,
                       std::uint64_t id, const std::shared_ptr<Engine>& engine)
    : memories_(std::move(memories)), rank_(static_cast<std::size_t>(rank)), engine_(engine) {
  region_.id = id;
  region_.bytes = bytes;
  for (const SharedMemory& memory : memories_) region_.by_rank.push_back(memory.data());
  engine->add_region(&region_);
}

ArenaBlock::~ArenaBlock() {
  if (const auto engine = engine_.lock()) engine->remove_region(&region_);
}

}  // namespace lockstep
