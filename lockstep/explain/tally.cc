#include "lockstep/explain/tally.h"

#include <algorithm>

namespace lockstep {

namespace {

struct Work {
  std::int64_t reduced = 0;
  std::int64_t copied = 0;
};

Work work_of(const Plan& plan, const Step& step, const ElementSize& size) {
  Work work;
  const auto destinations = plan.destinations(step);
  const auto sources = plan.sources(step);
  if (step.kind == StepKind::copy) work.copied = size.of(sources[0]);
  if (step.kind == StepKind::reduce) {
    for (const Location& source : sources) work.reduced += size.of(source);
    for (const Location& to : destinations.subspan(1)) work.copied += size.of(to);
  }
  return work;
}

}  // namespace

Tally tally(const Plan& plan, const ElementSize& size) {
  Tally tally;
  std::int64_t awaited = 0;
  for (const Step& step : plan.steps) {
    const Work work = work_of(plan, step, size);
    tally.bytes_reduced += work.reduced;
    tally.bytes_copied += work.copied;
    switch (step.kind) {
      case StepKind::copy:
        ++tally.copies;
        break;
      case StepKind::reduce:
        ++tally.reductions;
        break;
      case StepKind::barrier:
        ++tally.barriers;
        break;
      case StepKind::send:
        ++tally.messages_sent;
        tally.bytes_sent += size.of(plan.sources(step)[0]);
        break;
      case StepKind::receive:
        ++tally.messages_received;
        tally.bytes_received += size.of(plan.destinations(step)[0]);
        break;
      case StepKind::wait:
        if (step.messages > awaited) ++tally.waits;
        awaited = std::max(awaited, step.messages);
        break;
      case StepKind::flush:
        break;
    }
  }
  return tally;
}

double work_us(const Plan& plan, const Step& step, const ElementSize& size, const Prices& prices) {
  const Work work = work_of(plan, step, size);
  return static_cast<double>(work.reduced) * prices.reduced_byte_us +
         static_cast<double>(work.copied) * prices.copied_byte_us;
}

double estimate_us(const Tally& tally, const Prices& prices) {
  // Of the messages before a wait, all but the first are made while others are on the line.
  const std::int64_t apart = std::min(tally.waits, tally.messages_sent);
  const auto together = static_cast<double>(tally.messages_sent - apart) * prices.message_us;
  const auto wire = static_cast<double>(std::max(tally.bytes_sent, tally.bytes_received));
  return static_cast<double>(apart) * prices.message_us +
         std::max(together, wire * prices.byte_us) +
         static_cast<double>(tally.bytes_reduced) * prices.reduced_byte_us +
         static_cast<double>(tally.bytes_copied) * prices.copied_byte_us +
         static_cast<double>(tally.barriers) * prices.barrier_us +
         static_cast<double>(tally.waits) * prices.latency_us;
}

}  // namespace lockstep
