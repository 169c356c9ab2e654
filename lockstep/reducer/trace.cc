#include "lockstep/reducer/trace.h"

#include <fmt/format.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/env/files.h"

namespace lockstep {

namespace {

std::int64_t ns(Trace::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

std::int64_t now_ns() {
  return ns(Trace::Clock::now().time_since_epoch());
}

}  // namespace

void Trace::add(const char* name, Track track, Clock::time_point begin, Clock::time_point end,
                std::int64_t bytes, int index) {
  if (spans_.size() == kSpansMax) {
    ++left_out_;
    return;
  }
  spans_.push_back({name, track, index, ns(begin.time_since_epoch()), ns(end - begin), bytes});
}

std::string Trace::events(int rank, std::int64_t offset_ns) const {
  constexpr const char* kTracks[] = {"step", "buckets"};
  std::string text = fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
  text += fmt::format(
      ",\n"
      R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
      rank);
  for (int track = 0; track < 2; ++track) {
    text += fmt::format(
        ",\n"
        R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
        rank, track, kTracks[track]);
  }
  for (const Span& span : spans_) {
    const std::string name =
        span.index < 0 ? std::string(span.name) : fmt::format("{} {}", span.name, span.index);
    text += fmt::format(
        ",\n"
        R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
        name, rank, static_cast<int>(span.track),
        static_cast<double>(span.begin_ns + offset_ns) / 1000,
        static_cast<double>(span.duration_ns) / 1000);
    text += span.bytes > 0 ? fmt::format(R"(,"args":{{"bytes":{}}}}})", span.bytes) : "}";
  }
  if (left_out_ > 0) {
    text += fmt::format(
        ",\n"
        R"({{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":)"
        R"("the last {} spans are left out"}}}})",
        rank, left_out_);
  }
  return text;
}

std::int64_t clock_offset_ns(Group& group) {
  constexpr int kTrips = 16;
  std::int64_t offset = 0;
  for (int rank = 1; rank < group.size(); ++rank) {
    std::int64_t quickest = std::numeric_limits<std::int64_t>::max();
    for (int trip = 0; trip < kTrips; ++trip) {
      std::int64_t theirs = 0;
      const TensorView message{&theirs, 1, DType::i64};
      if (group.rank() == rank) {
        const std::int64_t sent = now_ns();
        group.send(message, 0);
        group.receive(message, 0);
        const std::int64_t received = now_ns();
        if (received - sent >= quickest) continue;
        quickest = received - sent;
        offset = theirs - (sent + received) / 2;
      } else if (group.rank() == 0) {
        group.receive(message, rank);
        theirs = now_ns();
        group.send(message, rank);
      }
    }
  }
  return offset;
}

void write_trace(const Trace& trace, Group& group, const std::string& path) {
  const std::int64_t offset_ns = clock_offset_ns(group);
  const auto parts = group.exchange(trace.events(group.rank(), offset_ns));
  std::string failure;
  if (group.rank() == 0) {
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (rank > 0) text += ",\n";
      text += parts[rank];
    }
    try {
      write_file_atomically(path, text + "\n]}\n");
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  failure = group.exchange(failure)[0];
  if (!failure.empty()) fail(Code::io, "cannot write the trace: {}", failure);
}

}  // namespace lockstep
