#include "lockstep/engine/planner.h"

#include <algorithm>
#include <set>

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"
#include "lockstep/plan/cutting.h"

namespace lockstep {

namespace {

constexpr std::size_t kEntriesMax = 4096;

std::uint64_t checksum_of(std::span<const std::int64_t> counts) {
  return counts.empty() ? 0 : checksum(counts.data(), counts.size_bytes());
}

std::int64_t total(const Request& request) {
  if (request.counts.empty()) return request.count;
  std::int64_t sum = 0;
  for (const std::int64_t count : request.counts) sum += count;
  return sum;
}

}  // namespace

std::size_t Planner::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  add(static_cast<std::uint64_t>(key.operation));
  add((key.reach.shared_data ? 1u : 0u) | (key.reach.shared_input ? 2u : 0u));
  add(static_cast<std::uint64_t>(key.root));
  add(static_cast<std::uint64_t>(key.peer));
  add(static_cast<std::uint64_t>(key.count));
  add(static_cast<std::uint64_t>(key.element_bytes));
  add(key.counts);
  return hash;
}

Planner::Planner(const Fabric& fabric, PlannerOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      one_host_(static_cast<int>(fabric.local.size()) == fabric.ranks),
      shares_(std::set<int>(fabric.hosts.begin(), fabric.hosts.end()).size() <
              fabric.hosts.size()) {}

void Planner::add_region(const SharedRegion* region) {
  regions_.push_back(region);
  last_ = {};
}

void Planner::remove_region(const SharedRegion* region) {
  std::erase(regions_, region);
  last_ = {};
}

Placement Planner::place_of(const std::byte* begin, std::int64_t count, DType dtype) const {
  const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (count <= 0) return {};
  for (const SharedRegion* region : regions_) {
    const std::byte* own = region->by_rank[static_cast<std::size_t>(fabric_.rank)];
    if (begin >= own && begin + bytes <= own + region->bytes) {
      return {region, static_cast<std::size_t>(begin - own)};
    }
  }
  return {};
}

Shape Planner::shape_of(const Request& request) const {
  Shape shape;
  shape.operation = request.operation;
  shape.ranks = fabric_.ranks;
  shape.rank = fabric_.rank;
  shape.root = request.root;
  shape.count = request.count;
  shape.counts = request.counts;
  shape.receive_counts = request.receive_counts;
  shape.hosts = fabric_.hosts;
  shape.peer = request.peer;
  cut_for_messages(shape, static_cast<std::int64_t>(size_of(request.dtype)));
  return shape;
}

Planner::Entry Planner::make(const Request& request, const Reach& reach) const {
  Shape shape = shape_of(request);
  const auto element = static_cast<std::int64_t>(size_of(request.dtype));
  Choice choice;
  choice.order = options_.order;
  const auto forced = options_.forced.find(request.operation);
  // A tensor without elements has no place in memory, so what needs one could not take it.
  // (Counts of an all_to_all differ between ranks: there the choice may not look at them.)
  const bool own_counts = request.operation == Operation::all_to_all && !request.counts.empty();
  const bool something = own_counts || total(request) > 0;
  if (forced != options_.forced.end() && something) choice.forced = forced->second;
  const Algorithm* algorithm = choose(shape, element, reach, options_.prices, choice);
  if (algorithm == nullptr) {
    fail(Code::unsupported, "{} by '{}' is asked for, which cannot be used here{}",
         to_string(request.operation), choice.forced,
         find_algorithm(request.operation, choice.forced) == nullptr
             ? ": there is no such algorithm"
             : "");
  }
  const auto scratch = static_cast<std::int64_t>(fabric_.scratch_bytes);
  cut_for_scratch(shape, *algorithm, element, scratch);
  auto plan = std::make_shared<const Plan>(algorithm->make(shape));
  LOCKSTEP_CHECK(!algorithm->needs.shared_scratch || plan->scratch_count * element <= scratch);
  return {algorithm, std::move(plan)};
}

const Decision& Planner::decide(const Request& request) {
  const bool same = last_.algorithm != nullptr && request.counts.empty() &&
                    request.receive_counts.empty() && last_request_.is_like(request);
  if (same) return last_;
  last_.algorithm = nullptr;  // in case this one throws
  Decision decision;
  Shape shape = shape_of(request);
  decision.data = place_of(request.data, data_count(shape), request.dtype);
  decision.input = place_of(request.input, input_count(shape), request.dtype);
  const Reach reach{.one_host = one_host_,
                    .shared_data = decision.data.region != nullptr && shares_,
                    .shared_input = decision.input.region != nullptr && shares_,
                    .shared_scratch = shares_,
                    .messages = !fabric_.links.empty()};
  const std::uint64_t counts = checksum_of(request.counts);
  const std::uint64_t receive_counts = checksum_of(request.receive_counts);
  const Key key{request.operation,
                reach,
                request.root,
                request.peer,
                request.count,
                static_cast<std::int64_t>(size_of(request.dtype)),
                counts + 3 * receive_counts};
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() >= kEntriesMax) entries_.clear();
    found = entries_.emplace(key, make(request, reach)).first;
  }
  decision.algorithm = found->second.algorithm;
  decision.plan = found->second.plan;
  Announcement& announcement = decision.announcement;
  announcement.operation = static_cast<std::uint8_t>(request.operation);
  announcement.algorithm = static_cast<std::uint8_t>(decision.algorithm - algorithms().data());
  announcement.dtype = request.dtype;
  announcement.reduce = request.reduce;
  announcement.root = request.root;
  // Where every rank sends what it likes to whom, the lengths of messages tell.
  const bool own_counts = request.operation == Operation::all_to_all && !request.counts.empty();
  announcement.count = own_counts ? 0 : total(request);
  announcement.detail = own_counts ? 0 : counts;
  const Needs& needs = decision.algorithm->needs;
  const Placement& shared = needs.shared_data ? decision.data : decision.input;
  if (needs.shared_data || needs.shared_input) {
    announcement.place = shared.region->id << 40 | static_cast<std::uint64_t>(shared.offset_bytes);
  }
  last_ = std::move(decision);
  last_request_ = request;
  last_request_.staged_data.reset();
  last_request_.staged_input.reset();
  last_request_.counts = last_request_.receive_counts = {};
  if (!request.counts.empty() || !request.receive_counts.empty()) {
    last_request_.count = -1;  // like none
  }
  return last_;
}

}  // namespace lockstep
