// Writes the mixed output to this process's standard output and error without waiting for a reader
// that does not read.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <optional>

#include "lockstep/launch/output.h"

namespace lockstep {

class OutputWriter {
 public:
  // Writes from the front of `queue` as much as goes without blocking. A stream whose reader has
  // gone swallows what follows.
  void write_some(std::deque<OutputMixer::Piece>& queue);

  // Where the front of `queue` goes.
  static int fd_of(Stream stream);
  // The errno of the first write that failed, once for each stream.
  std::optional<int> take_error(Stream stream);

 private:
  struct State {
    int error = 0;
    bool told = false;
  };
  std::array<State, 2> states_;
  std::size_t written_ = 0;  // of the front piece
};

}  // namespace lockstep
