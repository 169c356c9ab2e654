// Trace: what a rank did when, for a picture of all ranks on one clock (Chrome's trace format,
// which Perfetto and chrome://tracing open).
//
// Thread rule: that of the Reducer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  // What a span belongs to: a line of the picture for each.
  enum class Track : std::uint8_t { step, buckets };

  // `name` must live as long as the trace. Beyond kSpansMax spans the rest is left out, and
  // counted.
  void add(const char* name, Track track, Clock::time_point begin, Clock::time_point end,
           std::int64_t bytes = 0, int index = -1);
  std::size_t span_count() const { return spans_.size(); }

  static constexpr std::size_t kSpansMax = 100'000;

 private:
  friend void write_trace(const Trace& trace, Group& group, const std::string& path);
  struct Span {
    const char* name;
    Track track;
    int index;
    std::int64_t begin_ns;
    std::int64_t duration_ns;
    std::int64_t bytes;
  };
  // As events with times in µs on a clock that is `offset_ns` ahead of this one.
  std::string events(int rank, std::int64_t offset_ns) const;

  std::vector<Span> spans_;
  std::int64_t left_out_ = 0;
};

// Collective. How far rank 0's steady clock is ahead of this rank's, in ns: from the quickest of
// several round trips (Cristian, 1989), so wrong by at most half of it.
std::int64_t clock_offset_ns(Group& group);

// Collective. Rank 0 writes the spans of all ranks into one file, on its clock. Throws Error(io) on
// every rank if it cannot, Error(invalid_argument) if a rank's spans are too many to be sent.
void write_trace(const Trace& trace, Group& group, const std::string& path);

}  // namespace lockstep
