#include "lockstep/explain/case.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/plan/cutting.h"

namespace lockstep {

namespace {

// Chunks × ranks of a plan that fits well into memory, whatever the algorithm.
constexpr std::int64_t kPiecesMax = 1 << 20;

}  // namespace

ElementSize Case::size() const {
  return {static_cast<std::int64_t>(size_of(dtype)),
          static_cast<std::int64_t>(size_of(accumulation_type(dtype)))};
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

Shape shape_of(const Case& of, const Algorithm& algorithm, int rank) {
  Shape shape{of.operation, of.ranks, rank, of.root, of.count};
  shape.hosts = of.hosts;
  shape.peer = rank == of.root ? (of.root + 1) % of.ranks : of.root;
  const std::int64_t element_bytes = of.size().bytes;
  cut_for_messages(shape, element_bytes);
  cut_for_scratch(shape, algorithm, element_bytes, kScratchBytes);
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
  const std::int64_t chunks = chunks_in(of.count, shape.chunk_count);
  if (std::max<std::int64_t>(chunks, 1) * of.ranks > kPiecesMax) {
    fail(Code::invalid_argument,
         "a plan of {} of {} would have {} chunks for {} ranks, too many to look at; take fewer "
         "bytes or ranks",
         algorithm.name, to_string(of.operation), chunks, of.ranks);
  }
  if (!algorithm.needs.shared_scratch) return;
  const std::int64_t scratch_bytes = algorithm.make(shape).scratch_count * of.size().bytes;
  if (scratch_bytes > static_cast<std::int64_t>(kScratchBytes)) {
    fail(Code::invalid_argument,
         "{} of {} needs {} bytes of shared scratch on rank 0, and a rank has {}", algorithm.name,
         to_string(of.operation), scratch_bytes, kScratchBytes);
  }
}

}  // namespace lockstep
