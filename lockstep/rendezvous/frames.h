// The messages between a rank and the store: docs/wire-format.md.
//
// frame = magic u32, protocol u16, type u16, payload length u64,
// checksum u64 (of all the rest), payload
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class FrameType : std::uint16_t {
  join = 1,      // rank → store: i32 world size, text who (host and process)
  exchange = 2,  // rank → store: text; answered when every rank has sent one
  gathered = 3,  // store → rank: u32 ranks, then each rank's text
  report = 4,    // rank → store: u16 error code, text: an operation of mine failed
  leave = 5,     // rank → store: text how; the connection closes next
  broken = 6,    // store → rank: u16 error code, text: the group is broken, and why
  left = 7,      // store → rank: i32 rank, text how
  refused = 8,   // store → rank: u16 error code, text: you cannot join, and why
};

struct Frame {
  FrameType type = FrameType::join;
  std::string payload;
};

inline constexpr std::uint64_t kFramePayloadBytesMax = std::uint64_t{1} << 30;

std::string encode(const Frame& frame);

// Takes the first whole frame off `buffer`; empty when more bytes are needed. Throws Error(corrupt)
// for bytes that cannot become a frame, before anything of that length is stored.
std::optional<Frame> decode(std::string& buffer);

}  // namespace lockstep
