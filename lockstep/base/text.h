// Small helpers for messages and parsing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The whole of `text` as a decimal integer in [min, max]: no sign but '-', no spaces, no leading
// zeros, nothing after it. Empty otherwise.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t min,
                                          std::int64_t max);

// The one of `known` that is fewest edits away from `word`, if it is close enough to be a typing
// error (at most a third of the letters). Empty otherwise.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

std::string to_hex(std::span<const std::uint8_t> bytes);

// "4.2 MB": bytes in decimal units.
std::string human_bytes(double bytes);

// "rank 4", "ranks 0, 1", "ranks 0, 2–5, 9"; `ranks` ascend and are not
// empty.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace lockstep
