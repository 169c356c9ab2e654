#include "lockstep/rendezvous/frames.h"

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::uint32_t kMagic = 0x46534c4c;
constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kSummedHeaderBytes = 16;

std::uint64_t sum_of(std::string_view header, std::string_view payload) {
  return checksum(payload.data(), payload.size(), checksum(header.data(), kSummedHeaderBytes));
}

}  // namespace

std::string encode(const Frame& frame) {
  LOCKSTEP_CHECK(frame.payload.size() <= kFramePayloadBytesMax);
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kProtocolVersion);
  writer.put(static_cast<std::uint16_t>(frame.type));
  writer.put(static_cast<std::uint64_t>(frame.payload.size()));
  writer.put(sum_of(writer.bytes(), frame.payload));
  return writer.bytes() + frame.payload;
}

std::optional<Frame> decode(std::string& buffer) {
  if (buffer.size() < kHeaderBytes) return std::nullopt;
  WireReader reader(buffer);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto type = reader.get<std::uint16_t>();
  const auto length = reader.get<std::uint64_t>();
  const auto sum = reader.get<std::uint64_t>();
  if (magic != kMagic || version != kProtocolVersion || type < 1 || type > 8 ||
      length > kFramePayloadBytesMax) {
    fail(Code::corrupt, "bytes on a store connection are no frame of Lockstep");
  }
  if (buffer.size() < kHeaderBytes + length) return std::nullopt;
  Frame frame{static_cast<FrameType>(type), buffer.substr(kHeaderBytes, length)};
  if (sum_of(buffer, frame.payload) != sum) {
    fail(Code::corrupt, "a frame on a store connection is damaged (checksum)");
  }
  buffer.erase(0, kHeaderBytes + length);
  return frame;
}

}  // namespace lockstep
