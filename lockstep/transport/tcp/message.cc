#include "lockstep/transport/tcp/message.h"

#include <type_traits>

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::uint32_t kMagic = 0x4d4c534c;  // "LSLM"
constexpr std::size_t kCheckedBytes = 56;

// WireWriter without its string: a header is made for every message.
class HeaderWriter {
 public:
  explicit HeaderWriter(MessageHeader& header) : header_(header) {}
  template <class T>
  requires std::is_integral_v<T>
  void put(T value) {
    const auto bits = static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      header_[at_++] = static_cast<std::byte>(bits >> (8 * i) & 0xff);
    }
  }
  std::size_t at() const { return at_; }

 private:
  MessageHeader& header_;
  std::size_t at_ = 0;
};

}  // namespace

MessageHeader encode_header(const Message& message) {
  MessageHeader header;
  HeaderWriter writer(header);
  const Announcement& operation = message.operation;
  writer.put(kMagic);
  writer.put(kProtocolVersion);
  writer.put(operation.operation);
  writer.put(operation.algorithm);
  writer.put(static_cast<std::uint8_t>(operation.dtype));
  writer.put(static_cast<std::uint8_t>(operation.reduce));
  writer.put(static_cast<std::uint16_t>(message.question ? 1 : 0));
  writer.put(operation.root);
  writer.put(operation.sequence);
  writer.put(operation.count);
  writer.put(operation.place);
  writer.put(message.bytes);
  writer.put(operation.detail);
  LOCKSTEP_CHECK(writer.at() == kCheckedBytes);
  writer.put(checksum(header.data(), kCheckedBytes));
  return header;
}

std::optional<Message> decode_header(std::span<const std::byte, kMessageHeaderBytes> header) {
  WireReader reader({reinterpret_cast<const char*>(header.data()), header.size()});
  const bool magic = reader.get<std::uint32_t>() == kMagic;
  const bool version = reader.get<std::uint16_t>() == kProtocolVersion;
  Message message;
  Announcement& operation = message.operation;
  operation.operation = reader.get<std::uint8_t>();
  operation.algorithm = reader.get<std::uint8_t>();
  const auto dtype = reader.get<std::uint8_t>();
  const auto reduce = reader.get<std::uint8_t>();
  const auto question = reader.get<std::uint16_t>();
  message.question = question == 1;
  operation.root = reader.get<std::int32_t>();
  operation.sequence = reader.get<std::uint64_t>();
  operation.count = reader.get<std::int64_t>();
  operation.place = reader.get<std::uint64_t>();
  message.bytes = reader.get<std::uint64_t>();
  operation.detail = reader.get<std::uint64_t>();
  const bool intact = reader.get<std::uint64_t>() == checksum(header.data(), kCheckedBytes);
  if (!magic || !version || !intact || dtype >= kDTypeCount || reduce >= kReduceCount ||
      question > 1) {
    return std::nullopt;
  }
  operation.dtype = static_cast<DType>(dtype);
  operation.reduce = static_cast<Reduce>(reduce);
  return message;
}

}  // namespace lockstep
