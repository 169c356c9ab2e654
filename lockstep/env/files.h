// Files written whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Replaces `path` by `content` atomically: a temporary file beside it, fsync, rename, fsync of the
// folder. Whoever opens `path` sees the old bytes or the new ones. Throws Error(io) naming the
// path; the temporary file is gone then.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Throws Error(io) with the reason if no file can be made in `folder` (which is made if it is
// absent).
void require_writable_folder(const std::filesystem::path& folder);

// The whole file. Throws Error(io) naming the path, also when it is larger than `bytes_max`.
std::string read_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace lockstep
