// Turns the ranks' output, read in arbitrary pieces, into whole lines that never mix.
//
// Pure bookkeeping: no file descriptors. One thread. Memory is bounded by kLineBytesMax for each
// stream of each rank, plus what the caller leaves in the queue.
//
// Lines of one rank and stream keep their order. A line longer than kLineBytesMax is split: each
// part but the last ends with kLineGoesOn. A last line without a newline gets one.
//
// With one rank, bytes pass through as they come. With several, whole lines pass; on a terminal,
// parts of a line of rank 0 pass at once as long as it is the only one that has printed, so that a
// program's live line works. Once another rank has printed on a terminal, a part of a line with a
// carriage return is still shown, in place, and erased before the next line.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/options.h"

namespace lockstep {

inline constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;
inline constexpr std::string_view kLineGoesOn = " [lockstep: the line goes on]";

enum class Stream { out, err };

class OutputMixer {
 public:
  struct Piece {
    Stream stream;
    std::string bytes;
  };
  struct Terminals {
    bool out = false;
    bool err = false;
  };

  OutputMixer(int ranks, PrefixMode mode, Terminals terminals);

  // `bytes` were read from `stream` of `rank`.
  void add(int rank, Stream stream, std::string_view bytes);
  // Nothing more comes from `rank`: its unterminated lines are passed on.
  void finish(int rank);
  // A line of the launcher itself, without newline, on the error stream.
  void notice(std::string_view line);

  // What is to be written, in order, and how many bytes that is. The caller takes it from the
  // front.
  std::deque<Piece>& queue() { return queue_; }
  std::size_t queued_bytes() const;

 private:
  struct Line {
    std::string held;     // of a line that is not complete
    bool passed = false;  // its beginning has already gone to the screen, without a prefix
  };

  bool immediate(int rank, Stream stream) const;
  bool prefixed() const;
  Line& line_of(int rank, Stream stream);
  void other_rank_prints();
  void pass_lines(int rank, Stream stream, std::string_view bytes);
  void pass_whole(int rank, Stream stream, std::string_view line);
  void split_long_line(int rank, Stream stream, Line& line);
  void show_live(int rank, Stream stream, Line& line);
  void erase_live();
  void put(Stream stream, std::string_view bytes);

  const int ranks_;
  const PrefixMode mode_;
  const Terminals terminals_;
  std::vector<std::array<Line, 2>> lines_;
  std::deque<Piece> queue_;
  bool several_print_ = false;  // a rank other than 0 has printed
  bool live_ = false;           // a live line stands on the terminal
  Stream live_stream_ = Stream::out;
};

// Joins both streams of one rank for its log file: every byte, and no line inside another unless it
// is longer than kLineBytesMax.
class LogJoiner {
 public:
  // What is to be written now; the beginning of a line is kept until its end comes.
  std::string add(Stream stream, std::string_view bytes);
  // The unterminated lines.
  std::string finish();

 private:
  std::array<std::string, 2> held_;
};

// The last lines a rank printed, for the report of its failure.
class LineTail {
 public:
  static constexpr std::size_t kLinesMax = 5;
  static constexpr std::size_t kLineShownBytesMax = 400;

  void add(Stream stream, std::string_view bytes);
  // Oldest first, unterminated ones included.
  std::vector<std::string> lines() const;

 private:
  void keep(std::string line);

  std::array<std::string, 2> partial_;
  std::deque<std::string> lines_;
};

}  // namespace lockstep
