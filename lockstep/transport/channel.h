// Channel: bytes both ways between this rank and another of its host, through rings in their arena.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/transport/arena.h"
#include "lockstep/transport/ring.h"

namespace lockstep {

class Channel {
 public:
  // The arena must outlive it.
  Channel(const Arena* arena, int own, int peer)
      : arena_(arena), peer_(peer), out_(arena->ring(own, peer)), in_(arena->ring(peer, own)) {}

  // As Stream has them. Whoever waits at the other end is woken.
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::size_t put = out_.write(first, second);
    if (put > 0) arena_->ring_bell(peer_);
    return put;
  }
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second) {
    const bool was_full = in_.is_full();
    const std::size_t got = in_.read(first, second);
    if (got > 0 && was_full) arena_->ring_bell(peer_);
    return got;
  }
  bool can_write() const { return !out_.is_full(); }
  bool can_read() const { return !in_.is_empty(); }

 private:
  const Arena* arena_;
  int peer_;
  Ring out_;
  Ring in_;
};

}  // namespace lockstep
