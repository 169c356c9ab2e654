#include "lockstep/plan/packed_plan.h"

namespace lockstep {

namespace {

bool has_peer(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::receive;
}
bool has_messages(StepKind kind) {
  return kind == StepKind::wait || kind == StepKind::flush;
}
std::int64_t destinations_of(StepKind kind) {
  return kind == StepKind::copy || kind == StepKind::receive ? 1 : 0;
}
std::int64_t sources_of(StepKind kind) {
  return kind == StepKind::copy || kind == StepKind::send ? 1 : 0;
}

void append(std::vector<std::uint8_t>& bytes, std::int64_t number) {
  auto rest = (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
  for (; rest >= 0x80; rest >>= 7) bytes.push_back(static_cast<std::uint8_t>(rest | 0x80));
  bytes.push_back(static_cast<std::uint8_t>(rest));
}

std::int64_t take(const std::uint8_t*& at) {
  std::uint64_t number = 0;
  int shift = 0;
  for (; (*at & 0x80) != 0; shift += 7) number |= std::uint64_t{*at++ & 0x7fu} << shift;
  number |= std::uint64_t{*at++} << shift;
  return static_cast<std::int64_t>((number >> 1) ^ (~(number & 1) + 1));
}

}  // namespace

PackedPlan::PackedPlan(const Plan& plan)
    : needs_(plan.needs),
      scratch_count_(plan.scratch_count),
      partial_count_(plan.partial_count),
      step_count_(plan.steps.size()) {
  bytes_.reserve(2 * plan.steps.size() + 8 * plan.locations.size());
  for (const Step& step : plan.steps) {
    append(bytes_, static_cast<std::int64_t>(step.kind));
    if (has_peer(step.kind)) append(bytes_, step.peer);
    if (has_messages(step.kind)) append(bytes_, step.messages);
    if (step.kind == StepKind::reduce) {
      append(bytes_, step.destinations);
      append(bytes_, step.sources);
    }
    Location before;
    const auto add = [&](const Location& at) {
      append(bytes_, at.rank - before.rank);
      append(bytes_, static_cast<std::int64_t>(at.space) + kSpaceCount * at.level);
      append(bytes_, at.range.begin - before.range.begin);
      append(bytes_, at.range.count - before.range.count);
      before = at;
    };
    const bool any = step.kind == StepKind::reduce;
    const auto destinations = plan.destinations(step);
    const auto sources = plan.sources(step);
    for (const Location& at : any ? destinations : destinations.first(destinations_of(step.kind))) {
      add(at);
    }
    for (const Location& at : any ? sources : sources.first(sources_of(step.kind))) add(at);
  }
  bytes_.shrink_to_fit();
}

std::size_t PackedPlan::read(std::size_t position, UnpackedStep& step) const {
  const std::uint8_t* at = bytes_.data() + position;
  step.kind = static_cast<StepKind>(take(at));
  step.peer = has_peer(step.kind) ? static_cast<int>(take(at)) : -1;
  step.messages = has_messages(step.kind) ? take(at) : 0;
  const bool any = step.kind == StepKind::reduce;
  const std::int64_t destinations = any ? take(at) : destinations_of(step.kind);
  const std::int64_t sources = any ? take(at) : sources_of(step.kind);
  step.destination_count = static_cast<std::uint32_t>(destinations);
  step.locations.resize(static_cast<std::size_t>(destinations + sources));
  Location before;
  for (Location& location : step.locations) {
    before.rank += static_cast<int>(take(at));
    const std::int64_t place = take(at);
    before.space = static_cast<Space>(place % kSpaceCount);
    before.level = static_cast<std::uint8_t>(place / kSpaceCount);
    before.range.begin += take(at);
    before.range.count += take(at);
    location = before;
  }
  return static_cast<std::size_t>(at - bytes_.data());
}

}  // namespace lockstep
