// Field by field, little-endian: how every header of Lockstep is written and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep {

class WireWriter {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void put(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_ += static_cast<char>(bits & 0xff);
      if constexpr (sizeof(T) > 1) bits = static_cast<decltype(bits)>(bits >> 8);
    }
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  void put_raw(std::string_view raw) { bytes_ += raw; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Throws Error(corrupt) when there are fewer bytes than asked for.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_integral_v<T> T get() {
    const std::string_view raw = get_raw(sizeof(T));
    std::uint64_t bits = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) {
      bits = bits << 8 | static_cast<std::uint8_t>(raw[i]);
    }
    return static_cast<T>(bits);
  }
  std::string_view get_raw(std::size_t bytes) {
    if (bytes > rest_.size()) {
      fail(Code::corrupt, "a message ends {} bytes early", bytes - rest_.size());
    }
    const std::string_view raw = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return raw;
  }
  std::string get_text() { return std::string(get_raw(get<std::uint64_t>())); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

inline constexpr std::uint16_t kProtocolVersion = 2;

}  // namespace lockstep
