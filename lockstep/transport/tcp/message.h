// The header of a message between two ranks: docs/wire-format.md. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/transport/announcement.h"

namespace lockstep {

inline constexpr std::size_t kMessageHeaderBytes = 64;
using MessageHeader = std::array<std::byte, kMessageHeaderBytes>;

struct Message {
  Announcement operation;
  std::uint64_t bytes = 0;  // that follow the header
  // Not a message of the operation: only tells the peer that waits what this rank waits in.
  bool question = false;
};

MessageHeader encode_header(const Message& message);
// Empty for bytes that are no header of Lockstep, or a damaged one.
std::optional<Message> decode_header(std::span<const std::byte, kMessageHeaderBytes> header);

}  // namespace lockstep
