// The one place where a count is split into slices or chunks.
#pragma once

#include <cstdint>

namespace lockstep {

// Elements [begin, begin + count) of a buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return begin + count; }
  bool operator==(const Range&) const = default;
};

// Part `index` of `parts` of `whole`. Parts start at multiples of `align` elements (so that ranks
// do not share cache lines), are as equal as that allows, and the last ones may be empty.
constexpr Range slice_of(Range whole, std::int64_t parts, std::int64_t index,
                         std::int64_t align = 1) {
  const std::int64_t units = (whole.count + align - 1) / align;
  const std::int64_t base = units / parts;
  const std::int64_t extra = units % parts;
  const auto start = [&](std::int64_t i) {
    const std::int64_t unit = i * base + (i < extra ? i : extra);
    const std::int64_t element = unit * align;
    return element < whole.count ? element : whole.count;
  };
  return {whole.begin + start(index), start(index + 1) - start(index)};
}

// Number of chunks of at most `chunk_count` elements that cover `count` elements.
constexpr std::int64_t chunks_in(std::int64_t count, std::int64_t chunk_count) {
  return (count + chunk_count - 1) / chunk_count;
}

// Chunk `index` of `whole`; empty behind its end, so that ranges of different lengths can be walked
// together.
constexpr Range chunk_of(Range whole, std::int64_t chunk_count, std::int64_t index) {
  const std::int64_t next = index * chunk_count;
  const std::int64_t begin = next < whole.count ? next : whole.count;
  const std::int64_t left = whole.count - begin;
  return {whole.begin + begin, left < chunk_count ? left : chunk_count};
}

}  // namespace lockstep
