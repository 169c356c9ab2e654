// What a rank of the output tests prints: known to the rank and to the test.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>

namespace lockstep::launch_test {

inline constexpr int kChatterLines = 2000;
inline constexpr std::size_t kChatterLineBytes = 200;
inline constexpr std::size_t kLongLineBytes = std::size_t{1} << 20;

// Line `index` of `rank`, without newline: 200 bytes, full of two-byte characters, so that writing
// it in three parts tears some of them; the line in the middle is 1 MiB long.
inline std::string chatter_line(int rank, int index) {
  std::string line = fmt::format("rank {} line {} ", rank, index);
  const std::size_t bytes = index == kChatterLines / 2 ? kLongLineBytes : kChatterLineBytes;
  if ((bytes - line.size()) % 2 != 0) line += '.';
  while (line.size() < bytes) line += "é";
  return line;
}

// Even lines go to standard output, odd ones to standard error; the last one has no newline.
inline bool goes_to_stderr(int index) {
  return index % 2 != 0;
}

}  // namespace lockstep::launch_test
