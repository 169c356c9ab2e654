#include "lockstep/launch/output.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kPieceBytesMax = 64 * 1024;  // neighbours are joined up to this size
constexpr std::string_view kEraseLine = "\r\x1b[K";

// Where to cut `text`, at most `bytes_max` long, so that no UTF-8 sequence is torn.
std::size_t cut_point(std::string_view text, std::size_t bytes_max) {
  std::size_t cut = bytes_max;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (cut > bytes_max - 4 && continues(cut)) --cut;
  return continues(cut) ? bytes_max : cut;
}

}  // namespace

OutputMixer::OutputMixer(int ranks, PrefixMode mode, Terminals terminals)
    : ranks_(ranks), mode_(mode), terminals_(terminals), lines_(static_cast<std::size_t>(ranks)) {}

std::size_t OutputMixer::queued_bytes() const {
  std::size_t bytes = 0;
  for (const Piece& piece : queue_) bytes += piece.bytes.size();
  return bytes;
}

OutputMixer::Line& OutputMixer::line_of(int rank, Stream stream) {
  return lines_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stream)];
}

bool OutputMixer::prefixed() const {
  return mode_ == PrefixMode::always ||
         (mode_ == PrefixMode::automatic && ranks_ > 1 && several_print_);
}

bool OutputMixer::immediate(int rank, Stream stream) const {
  if (mode_ == PrefixMode::always) return false;
  if (ranks_ == 1) return true;
  return rank == 0 && !several_print_ && (stream == Stream::out ? terminals_.out : terminals_.err);
}

void OutputMixer::add(int rank, Stream stream, std::string_view bytes) {
  if (bytes.empty()) return;
  if (rank != 0 && !several_print_) other_rank_prints();
  if (immediate(rank, stream)) {
    put(stream, bytes);
    line_of(rank, stream).passed = bytes.back() != '\n';
    return;
  }
  pass_lines(rank, stream, bytes);
}

// From here on parts of lines are held back, so those of rank 0 that are on the screen are ended.
void OutputMixer::other_rank_prints() {
  several_print_ = true;
  for (const Stream stream : {Stream::out, Stream::err}) {
    Line& line = line_of(0, stream);
    if (line.passed) put(stream, "\n");
    line.passed = false;
  }
}

void OutputMixer::pass_lines(int rank, Stream stream, std::string_view bytes) {
  Line& line = line_of(rank, stream);
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    line.held += bytes.substr(0, newline);
    while (line.held.size() > kLineBytesMax) split_long_line(rank, stream, line);
    if (newline == std::string_view::npos) break;
    pass_whole(rank, stream, line.held);
    line.held.clear();
    bytes.remove_prefix(newline + 1);
  }
  if (!line.held.empty()) show_live(rank, stream, line);
}

void OutputMixer::split_long_line(int rank, Stream stream, Line& line) {
  const std::size_t cut = cut_point(line.held, kLineBytesMax);
  pass_whole(rank, stream, line.held.substr(0, cut).append(kLineGoesOn));
  line.held.erase(0, cut);
}

void OutputMixer::pass_whole(int rank, Stream stream, std::string_view line) {
  erase_live();
  if (prefixed()) put(stream, fmt::format("[rank {}] ", rank));
  const bool terminal = stream == Stream::out ? terminals_.out : terminals_.err;
  if (terminal && !line.empty()) {  // what a carriage return has overwritten
    const std::size_t start = line.substr(0, line.size() - 1).rfind('\r');
    if (start != std::string_view::npos) line.remove_prefix(start + 1);
  }
  put(stream, line);
  put(stream, "\n");
}

void OutputMixer::show_live(int rank, Stream stream, Line& line) {
  const std::size_t start = line.held.rfind('\r');
  const bool terminal = stream == Stream::out ? terminals_.out : terminals_.err;
  if (!terminal || start == std::string::npos || start + 1 == line.held.size()) return;
  line.held.erase(0, start);  // what a carriage return has overwritten
  put(stream, kEraseLine);
  if (prefixed()) put(stream, fmt::format("[rank {}] ", rank));
  put(stream, std::string_view(line.held).substr(1));
  live_ = true;
  live_stream_ = stream;
}

void OutputMixer::erase_live() {
  if (live_) put(live_stream_, kEraseLine);
  live_ = false;
}

void OutputMixer::finish(int rank) {
  for (const Stream stream : {Stream::out, Stream::err}) {
    Line& line = line_of(rank, stream);
    if (!line.held.empty()) pass_whole(rank, stream, line.held);
    line.held.clear();
  }
}

void OutputMixer::notice(std::string_view line) {
  erase_live();
  for (const Stream stream : {Stream::out, Stream::err}) {
    Line& partial = line_of(0, stream);
    const bool on_screen = stream == Stream::err || terminals_.out;
    if (partial.passed && on_screen) put(stream, "\n");
    if (on_screen) partial.passed = false;
  }
  put(Stream::err, line);
  put(Stream::err, "\n");
}

void OutputMixer::put(Stream stream, std::string_view bytes) {
  if (queue_.empty() || queue_.back().stream != stream ||
      queue_.back().bytes.size() + bytes.size() > kPieceBytesMax) {
    queue_.push_back({stream, std::string(bytes)});
  } else {
    queue_.back().bytes += bytes;
  }
}

std::string LogJoiner::add(Stream stream, std::string_view bytes) {
  std::string& held = held_[static_cast<std::size_t>(stream)];
  const std::size_t newline = bytes.rfind('\n');
  if (newline == std::string_view::npos) {
    held += bytes;
    return held.size() > kLineBytesMax ? std::exchange(held, {}) : std::string();
  }
  std::string whole = std::exchange(held, std::string(bytes.substr(newline + 1)));
  whole += bytes.substr(0, newline + 1);
  return whole;
}

std::string LogJoiner::finish() {
  return std::exchange(held_[0], {}) + std::exchange(held_[1], {});
}

void LineTail::add(Stream stream, std::string_view bytes) {
  std::string& partial = partial_[static_cast<std::size_t>(stream)];
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    std::string_view part = bytes.substr(0, newline);
    const std::size_t overwritten = part.substr(0, part.size() - !part.empty()).rfind('\r');
    if (overwritten != std::string_view::npos) {
      partial.clear();
      part.remove_prefix(overwritten + 1);
    }
    const std::size_t room = kLineShownBytesMax + 1 - partial.size();
    partial += part.substr(0, room);
    if (newline == std::string_view::npos) return;
    keep(std::move(partial));
    partial.clear();
    bytes.remove_prefix(newline + 1);
  }
}

void LineTail::keep(std::string line) {
  if (line.size() > kLineShownBytesMax) {
    line.resize(cut_point(line, kLineShownBytesMax));
    line += " …";
  }
  while (line.ends_with('\r')) line.pop_back();
  if (line.find_first_not_of(" \t") == std::string::npos) return;
  lines_.push_back(std::move(line));
  if (lines_.size() > kLinesMax) lines_.pop_front();
}

std::vector<std::string> LineTail::lines() const {
  LineTail whole = *this;
  for (const std::string& partial : partial_) whole.keep(partial);
  return {whole.lines_.begin(), whole.lines_.end()};
}

}  // namespace lockstep
