// Link: a way to move messages between this rank and one peer, in order, in both directions.
//
// Thread rule: one thread at a time (the engine's driver). Nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/transport/announcement.h"

namespace lockstep {

class Link {
 public:
  virtual ~Link() = default;

  // Queues a message and returns its number. The bytes are read until sent() has reached that.
  virtual std::int64_t send(std::span<const std::byte> bytes, const Announcement& operation) = 0;
  // Asks for the next message, which must be as long and of the same operation: progress() throws
  // Error(invalid_argument) naming both sides if it is not. Returns its number; it has landed when
  // received() has reached that.
  virtual std::int64_t receive(std::span<std::byte> bytes, const Announcement& operation) = 0;

  // Tells the peer that this rank waits in `operation`. If the peer waits for this rank in
  // something else under the same number, it throws as receive() says.
  virtual void ask(const Announcement& operation) = 0;

  // Moves what can be moved now. Throws Error(peer_lost) when the peer is gone while something is
  // under way, Error(corrupt) when bytes are not a message.
  virtual void progress() = 0;

  // Messages fully handed over or landed since the link was made.
  virtual std::int64_t sent() const = 0;
  virtual std::int64_t received() const = 0;

  // What poll(2) should watch while something is under way; -1: nothing, the link goes through the
  // arena, where Arena::listen() waits, and is_ready() says whether progress() would move
  // something.
  virtual int fd() const = 0;
  virtual short wanted_events() const = 0;
  virtual bool is_ready() const = 0;
};

}  // namespace lockstep
