#include "lockstep/reducer/reducer.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::size_t kAlignBytes = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

}  // namespace

BucketPlan plan_buckets(const std::vector<Gradient>& gradients, std::int64_t bucket_bytes_max) {
  BucketPlan plan;
  plan.offset_bytes.resize(gradients.size());
  plan.bucket_of.resize(gradients.size());
  const auto limit = static_cast<std::size_t>(bucket_bytes_max);
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const Gradient& gradient = gradients[i];
    const std::size_t bytes =
        aligned(static_cast<std::size_t>(gradient.count) * size_of(gradient.dtype));
    const auto open = [&] {
      if (plan.buckets.empty() || plan.buckets.back().dtype != gradient.dtype) return false;
      return plan.block_bytes - plan.buckets.back().offset_bytes + bytes <= limit;
    };
    if (!open()) plan.buckets.push_back({gradient.dtype, plan.block_bytes, 0, {}});
    Bucket& bucket = plan.buckets.back();
    bucket.gradients.push_back(i);
    plan.offset_bytes[i] = plan.block_bytes;
    plan.bucket_of[i] = plan.buckets.size() - 1;
    plan.block_bytes += bytes;
    bucket.count = static_cast<std::int64_t>((plan.block_bytes - bucket.offset_bytes) /
                                             size_of(gradient.dtype));
  }
  return plan;
}

Reducer::Reducer(Group& group, std::vector<Gradient> gradients, std::int64_t bucket_bytes_max)
    : group_(group),
      gradients_(std::move(gradients)),
      plan_(plan_buckets(gradients_, bucket_bytes_max)),
      block_(group.allocate(plan_.block_bytes)),
      ready_(gradients_.size()),
      missing_(plan_.buckets.size()),
      works_(plan_.buckets.size()) {
  for (const Gradient& gradient : gradients_) {
    payload_bytes_ += static_cast<std::size_t>(gradient.count) * size_of(gradient.dtype);
  }
}

std::byte* Reducer::slot(std::size_t index) const {
  return block_->data() + plan_.offset_bytes[index];
}

void Reducer::begin() {
  LOCKSTEP_CHECK(!collecting_);
  collecting_ = true;
  std::fill(ready_.begin(), ready_.end(), false);
  for (std::size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = plan_.buckets[b].gradients.size();
  }
  launched_ = 0;
  exposed_ = {};
}

void Reducer::ready(std::size_t index) {
  LOCKSTEP_CHECK(collecting_);
  if (ready_[index]) {
    fail(
        Code::invalid_argument,
        "the gradient of '{}' is ready twice in one backward pass: an earlier pass was broken off, "
        "or two passes run at the same time",
        gradients_[index].name);
  }
  ready_[index] = true;
  const bool complete = --missing_[plan_.bucket_of[index]] == 0;
  if (!complete && launched_ == 0) return;
  const auto start = Clock::now();
  if (complete) launch_ready();
  group_.poll();
  exposed_ += Clock::now() - start;
}

void Reducer::launch_ready() {
  for (; launched_ < plan_.buckets.size() && missing_[launched_] == 0; ++launched_) {
    const Bucket& bucket = plan_.buckets[launched_];
    works_[launched_] = group_.async().all_reduce(
        {block_->data() + bucket.offset_bytes, bucket.count, bucket.dtype}, Reduce::mean);
  }
}

void Reducer::finish() {
  LOCKSTEP_CHECK(collecting_ && launched_ == plan_.buckets.size());
  const auto start = Clock::now();
  for (Work& work : works_) {
    work.wait();
    work = Work();
  }
  exposed_ += Clock::now() - start;
  exposed_ms_ = std::chrono::duration<double, std::milli>(exposed_).count();
  collecting_ = false;
}

void Reducer::abandon() {
  if (!collecting_) return;
  collecting_ = false;
  if (launched_ > 0) group_.abort("a backward pass was broken off");
  for (Work& work : works_) {
    try {
      work.wait();  // nothing may touch the slots any more
    } catch (const Error&) {
      // The group's error, which every later call will throw.
    }
    work = Work();
  }
}

}  // namespace lockstep
