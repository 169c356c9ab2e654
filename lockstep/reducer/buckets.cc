#include "lockstep/reducer/buckets.h"

#include <algorithm>
#include <map>

namespace lockstep {

namespace {

constexpr std::size_t kAlignBytes = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

std::size_t slot_bytes(const Gradient& gradient) {
  return aligned(static_cast<std::size_t>(gradient.count) * size_of(gradient.dtype));
}

// Groups of gradients in the order in which they become complete. One group is open per type: types
// may alternate.
std::vector<std::vector<std::size_t>> group(const std::vector<Gradient>& gradients,
                                            const std::vector<std::size_t>& order,
                                            const BucketLimits& limits) {
  struct Group {
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
    std::size_t complete_at = 0;
    std::size_t bytes_max = 0;
  };
  std::vector<Group> groups;
  std::map<DType, std::size_t> open;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const Gradient& gradient = gradients[order[position]];
    const std::size_t bytes = slot_bytes(gradient);
    const auto found = open.find(gradient.dtype);
    const bool fits = found != open.end() &&
                      groups[found->second].bytes + bytes <= groups[found->second].bytes_max;
    if (!fits) {
      const std::int64_t limit =
          groups.empty() ? std::min(limits.first_bytes_max, limits.bytes_max) : limits.bytes_max;
      open[gradient.dtype] = groups.size();
      groups.push_back({{}, 0, 0, static_cast<std::size_t>(limit)});
    }
    Group& group = groups[open[gradient.dtype]];
    group.members.push_back(order[position]);
    group.bytes += bytes;
    group.complete_at = position;
  }
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.complete_at < b.complete_at; });
  std::vector<std::vector<std::size_t>> members;
  for (Group& group : groups) members.push_back(std::move(group.members));
  return members;
}

}  // namespace

BucketPlan plan_buckets(const std::vector<Gradient>& gradients,
                        const std::vector<std::size_t>& order, const BucketLimits& limits) {
  BucketPlan plan;
  plan.offset_bytes.resize(gradients.size());
  plan.bucket_of.resize(gradients.size());
  for (auto& members : group(gradients, order, limits)) {
    Bucket bucket{gradients[members[0]].dtype, plan.block_bytes, 0, std::move(members)};
    for (const std::size_t i : bucket.gradients) {
      plan.offset_bytes[i] = plan.block_bytes;
      plan.bucket_of[i] = plan.buckets.size();
      plan.block_bytes += slot_bytes(gradients[i]);
    }
    bucket.count =
        static_cast<std::int64_t>((plan.block_bytes - bucket.offset_bytes) / size_of(bucket.dtype));
    plan.buckets.push_back(std::move(bucket));
  }
  plan.status_offset_bytes = plan.block_bytes;
  plan.block_bytes += kAlignBytes;
  return plan;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = count - 1 - i;
  return order;
}

}  // namespace lockstep
