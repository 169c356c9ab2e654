#include "lockstep/explain/case.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/plan/cutting.h"

namespace lockstep {

namespace {

// Steps and locations of a plan that fits well into memory.
constexpr double kStepsMax = 1.6e7;

// Of root's plan, going by plans for one chunk and for two.
double steps_of(const Case& of, const Algorithm& algorithm) {
  Shape shape = shape_of(of, algorithm, of.root);
  std::int64_t chunk_count = shape.chunk_count;
  const bool pieces = of.operation == Operation::reduce_scatter ||
                      of.operation == Operation::scatter || of.operation == Operation::all_to_all;
  if (pieces && algorithm.needs.shared_scratch) {  // of every part, in one chunk of scratch
    chunk_count = std::max<std::int64_t>(1, chunk_count / of.ranks);
  }
  const auto steps_for = [&](std::int64_t chunks) {
    shape.count = std::min(of.count, chunks * chunk_count);
    const Plan plan = algorithm.make(shape);
    return static_cast<double>(plan.steps.size() + plan.locations.size());
  };
  const double one = steps_for(1);
  const auto chunks = static_cast<double>(chunks_in(of.count, chunk_count));
  return chunks <= 1 ? one : one + (chunks - 1) * (steps_for(2) - one);
}

}  // namespace

ElementSize Case::size() const {
  return {static_cast<std::int64_t>(size_of(dtype)),
          static_cast<std::int64_t>(size_of(accumulation_type(dtype)))};
}

bool has_parts(Operation operation) {
  const Shape two{operation, 2, 0, 0, 1};
  return data_count(two) > 1 || input_count(two) > 1;
}

std::vector<int> blocks_of_ranks(int ranks, int hosts) {
  std::vector<int> host_of;
  for (int host = 0; host < hosts; ++host) {
    const Range members = slice_of({0, ranks}, hosts, host);
    host_of.insert(host_of.end(), static_cast<std::size_t>(members.count), host);
  }
  return host_of;
}

std::vector<int> usual_hosts(int ranks, const Needs& needs) {
  if (!needs.messages) return {};
  const bool shares = needs.shared_data || needs.shared_input || needs.shared_scratch;
  return blocks_of_ranks(ranks, shares ? std::min(ranks, 2) : ranks);
}

Shape shape_to_choose(const Case& of) {
  Shape shape{of.operation, of.ranks, 0, of.root, of.count};
  shape.hosts = of.hosts;
  cut_for_messages(shape, of.size().bytes);
  return shape;
}

Shape shape_of(const Case& of, const Algorithm& algorithm, int rank) {
  Shape shape = shape_to_choose(of);
  shape.rank = rank;
  shape.peer = rank == of.root ? (of.root + 1) % of.ranks : of.root;
  cut_for_scratch(shape, algorithm, of.size().bytes, kScratchBytes);
  return shape;
}

void require_plans(const Case& of, const Algorithm& algorithm) {
  const Shape shape = shape_of(of, algorithm, 0);
  if (algorithm.accepts != nullptr && !algorithm.accepts(shape)) {
    fail(Code::invalid_argument, "{} of {} makes no plan for {} ranks{}", algorithm.name,
         to_string(of.operation), of.ranks,
         algorithm.accepts == power_of_two_ranks ? ": they must be a power of two" : "");
  }
  if (!algorithm.needs.messages && !of.hosts.empty() && of.hosts.back() > 0) {
    fail(Code::invalid_argument, "{} of {} shares memory and sends no messages: it needs one host",
         algorithm.name, to_string(of.operation));
  }
  const double steps = steps_of(of, algorithm);
  if (steps > kStepsMax) {
    fail(Code::invalid_argument,
         "a plan of {} of {} would have {:.0f} million steps for {} ranks, too many to look at; "
         "take fewer bytes or ranks",
         algorithm.name, to_string(of.operation), steps / 1e6, of.ranks);
  }
  if (!algorithm.needs.shared_scratch) return;
  const std::int64_t scratch_bytes =
      algorithm.make(shape_of(of, algorithm, 0)).scratch_count * of.size().bytes;
  if (scratch_bytes > static_cast<std::int64_t>(kScratchBytes)) {
    fail(Code::invalid_argument,
         "{} of {} needs {} bytes of shared scratch on rank 0, and a rank has {}", algorithm.name,
         to_string(of.operation), scratch_bytes, kScratchBytes);
  }
}

}  // namespace lockstep
