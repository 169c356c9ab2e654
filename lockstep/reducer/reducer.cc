#include "lockstep/reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/kernels/convert.h"

namespace lockstep {

namespace {

// Says "this rank lacks a gradient". Large, so that nothing that it is divided by makes it vanish,
// even as f16.
constexpr float kLacks = 32768;

std::byte* bytes_of(const void* memory) {
  return static_cast<std::byte*>(const_cast<void*>(memory));
}

double ms(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

Reducer::Reducer(Group& group, std::vector<Gradient> gradients, const ReducerOptions& options)
    : group_(group),
      gradients_(std::move(gradients)),
      limits_(options.buckets),
      check_finite_(options.check_finite && group.size() > 1),
      plan_(plan_buckets(gradients_, reverse_order(gradients_.size()), limits_)),
      block_(group.allocate(plan_.block_bytes)),
      trial_(group, options.choose_runner),
      announced_(static_cast<std::size_t>(group.size())),
      ready_(gradients_.size()),
      produced_(gradients_.size()),
      missing_(plan_.buckets.size()),
      reductions_(plan_.buckets.size()),
      watches_(plan_.buckets.size()),
      times_(plan_.buckets.size()) {
  for (const Gradient& gradient : gradients_) {
    payload_bytes_ += gradient.count * static_cast<std::int64_t>(size_of(gradient.dtype));
  }
}

std::byte* Reducer::slot(std::size_t index) const {
  return block_->data() + plan_.offset_bytes[index];
}

double Reducer::since_begin_ms() const {
  return ms(Clock::now() - begun_);
}

void Reducer::begin(const Part& part) {
  LOCKSTEP_CHECK(!collecting_);
  trial_.begin(passes_);
  collecting_ = true;
  begun_ = Clock::now();
  exposed_ = {};
  part_ = part;
  is_announced_ = !part.announced;
  divisor_ = group_.size() * part.micro_passes;
  if (part.announced) {
    own_announcement_ = part.live ? part.weight : -1;
    announcement_ = group_.async().all_gather(
        {announced_.data(), static_cast<std::int64_t>(announced_.size()), DType::i64},
        {&own_announcement_, 1, DType::i64});
  }
  std::fill(ready_.begin(), ready_.end(), false);
  std::fill(produced_.begin(), produced_.end(), std::uint8_t{1});
  absent_count_ = 0;
  for (std::size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = plan_.buckets[b].gradients.size();
  }
  launched_ = done_ = 0;
  arrival_.clear();  // of a pass that was broken off
}

void Reducer::wait_for_announcement() {
  if (is_announced_) return;
  announcement_.wait();
  announcement_ = Work();
  is_announced_ = true;
  if (part_.divisor == Divisor::ranks) return;
  divisor_ = 0;
  for (const std::int64_t weight : announced_) {
    if (weight >= 0) divisor_ += part_.divisor == Divisor::weights ? weight : part_.micro_passes;
  }
}

int Reducer::first_live() {
  LOCKSTEP_CHECK(collecting_ && part_.announced);
  wait_for_announcement();
  const auto live = [](std::int64_t weight) { return weight >= 0; };
  const auto found = std::find_if(announced_.begin(), announced_.end(), live);
  return found == announced_.end() ? -1 : static_cast<int>(found - announced_.begin());
}

bool Reducer::anybody_live() {
  if (first_live() >= 0) return true;
  collecting_ = false;
  return false;
}

std::int64_t Reducer::divisor() {
  wait_for_announcement();
  return divisor_;
}

void Reducer::ready(std::size_t index) {
  if (passes_ == 0) arrival_.push_back(index);
  mark(index);
}

void Reducer::absent(std::size_t index) {
  produced_[index] = 0;
  ++absent_count_;
  mark(index);
}

void Reducer::mark(std::size_t index) {
  LOCKSTEP_CHECK(collecting_);
  if (ready_[index]) {
    fail(Code::invalid_argument,
         "the gradient of '{}' is ready twice in one backward pass: an earlier pass was broken "
         "off, two passes run at the same time, or its layer is computed again inside backward",
         gradients_[index].name);
  }
  ready_[index] = true;
  const bool complete = --missing_[plan_.bucket_of[index]] == 0;
  if (complete) times_[plan_.bucket_of[index]].ready_ms = since_begin_ms();
  if (!complete && launched_ == done_) return;
  const auto start = Clock::now();
  if (complete) launch_ready();
  group_.poll();
  see_done();
  exposed_ += Clock::now() - start;
}

void Reducer::launch_ready() {
  for (; launched_ < plan_.buckets.size() && missing_[launched_] == 0; ++launched_) {
    launch(launched_);
  }
}

void Reducer::launch(std::size_t index) {
  wait_for_announcement();
  const Bucket& planned = plan_.buckets[index];
  GradientBucket bucket;
  bucket.index = index;
  bucket.bucket_count = plan_.buckets.size();
  bucket.tensor = {block_->data() + planned.offset_bytes, planned.count, planned.dtype};
  bucket.mean_of = std::max<std::int64_t>(divisor_, 1);
  watches_[index] = NotFinite();
  if (check_finite_) bucket.not_finite = &watches_[index];
  bucket.gradients = gradients_;
  bucket.members = planned.gradients;
  times_[index].launch_ms = since_begin_ms();
  times_[index].bytes = static_cast<std::int64_t>(bucket.tensor.bytes());
  const bool last = index + 1 == plan_.buckets.size();
  if (last) {
    write_status(absent_count_ > 0);
    if (hooks_.empty()) ++bucket.tensor.count;  // the status stands right behind
  }
  reductions_[index] = reduce(hooks_.size(), bucket);
  if (!last || hooks_.empty()) return;
  status_work_ = group_.async().all_reduce(
      {block_->data() + plan_.status_offset_bytes, 1, planned.dtype}, Reduce::max);
}

// `hook` of them are still to be asked.
Reduction Reducer::reduce(std::size_t hook, const GradientBucket& bucket) {
  if (hook > 0) {
    return hooks_[hook - 1](
        bucket, [this, hook](const GradientBucket& inner) { return reduce(hook - 1, inner); });
  }
  return {group_.async().all_reduce(bucket.tensor, MeanOf{bucket.mean_of}, bucket.not_finite), {}};
}

void Reducer::see_done() {
  for (; done_ < launched_ && reductions_[done_].work.done(); ++done_) {
    times_[done_].done_ms = since_begin_ms();
  }
}

void Reducer::write_status(bool lacks) {
  const float value = lacks ? kLacks : 0;
  convert(block_->data() + plan_.status_offset_bytes, plan_.buckets.back().dtype, bytes_of(&value),
          DType::f32, 1);
}

bool Reducer::read_status() {
  float value = 0;
  convert(bytes_of(&value), DType::f32, block_->data() + plan_.status_offset_bytes,
          plan_.buckets.back().dtype, 1);
  return value != 0;
}

void Reducer::finish() {
  LOCKSTEP_CHECK(collecting_ && launched_ == plan_.buckets.size());
  const auto start = Clock::now();
  for (std::size_t b = 0; b < reductions_.size(); ++b) {
    Reduction& reduction = reductions_[b];
    reduction.work.wait();
    if (reduction.then) reduction.then();
    if (b >= done_) times_[b].done_ms = since_begin_ms();
    reduction = {};
  }
  done_ = launched_;
  status_work_.wait();
  status_work_ = Work();
  someone_lacked_ = !plan_.buckets.empty() && read_status();
  if (someone_lacked_) compare_produced();
  if (check_finite_) compare_finite();
  trial_.end(passes_, since_begin_ms());
  if (passes_ == 0) adopt_order();
  ++passes_;
  finish_ms_ = ms(Clock::now() - start);
  exposed_ += Clock::now() - start;
  exposed_ms_ = ms(exposed_);
  collecting_ = false;
}

// Each rank has seen its own parts of the sums.
void Reducer::compare_finite() {
  const auto seen = [](const NotFinite& watch) { return watch.first >= 0; };
  std::uint8_t any = std::any_of(watches_.begin(), watches_.end(), seen) ? 1 : 0;
  group_.all_reduce({&any, 1, DType::u8}, Reduce::max);
  not_finite_ = any != 0;
}

std::string Reducer::describe_not_finite() {
  // Where a part was seen says who; which gradient it is stands in the results, the same on all
  // ranks.
  const auto found = std::find_if(watches_.begin(), watches_.end(),
                                  [](const NotFinite& watch) { return watch.first >= 0; });
  const std::string own =
      found == watches_.end()
          ? std::string()
          : fmt::format("{} {} {}", found - watches_.begin(), found->first, found->count);
  std::size_t bucket = plan_.buckets.size();
  NotFinite who;
  for (const std::string& text : group_.exchange(own)) {
    std::istringstream words(text);
    std::size_t at = 0;
    NotFinite theirs;
    if (!(words >> at >> theirs.first >> theirs.count) || at >= bucket) continue;
    bucket = at;
    who = theirs;
  }
  if (bucket == plan_.buckets.size()) return "an infinity or NaN in the gradients";
  std::string what = "a gradient";
  for (const std::size_t i : plan_.buckets[bucket].gradients) {
    if (all_finite(slot(i), gradients_[i].dtype, gradients_[i].count)) continue;
    what = fmt::format("the gradient of '{}'", gradients_[i].name);
    break;
  }
  if (who.count == 0) return fmt::format("{} is too large when the ranks are added", what);
  if (who.count == 1) return fmt::format("{} is not finite on rank {}", what, who.first);
  return fmt::format("{} is not finite on one of ranks {} to {}", what, who.first,
                     who.first + who.count - 1);
}

void Reducer::compare_produced() {
  group_.all_reduce({produced_.data(), static_cast<std::int64_t>(produced_.size()), DType::u8},
                    Reduce::max);
}

// The slots follow the order in which rank 0's gradients came; those that did not come stand last,
// in the order they had.
void Reducer::adopt_order() {
  std::vector<bool> came(gradients_.size());
  for (const std::size_t i : arrival_) came[i] = true;
  for (const std::size_t i : reverse_order(gradients_.size())) {
    if (!came[i]) arrival_.push_back(i);
  }
  group_.broadcast({arrival_.data(), static_cast<std::int64_t>(arrival_.size()), DType::i64});
  const std::vector<std::size_t> order = std::exchange(arrival_, {});
  if (order == reverse_order(gradients_.size())) return;
  const BucketPlan next = plan_buckets(gradients_, order, limits_);
  LOCKSTEP_CHECK(next.block_bytes <= block_->bytes());
  const std::vector<std::byte> values(block_->data(), block_->data() + plan_.block_bytes);
  std::memset(block_->data(), 0, block_->bytes());
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    std::memcpy(block_->data() + next.offset_bytes[i], values.data() + plan_.offset_bytes[i],
                static_cast<std::size_t>(gradients_[i].count) * size_of(gradients_[i].dtype));
  }
  plan_ = next;
  ++layout_;
  missing_.resize(plan_.buckets.size());
  reductions_.resize(plan_.buckets.size());
  watches_.resize(plan_.buckets.size());
  times_.resize(plan_.buckets.size());
}

void Reducer::abandon() {
  if (!collecting_) return;
  collecting_ = false;
  if (launched_ > 0 || part_.announced) group_.abort("a backward pass was broken off");
  const auto forget = [](Work& work) {
    try {
      work.wait();  // nothing may touch the memory any more
    } catch (const Error&) {
      // The group's error, which every later call will throw.
    }
    work = Work();
  };
  forget(announcement_);
  forget(status_work_);
  for (Reduction& reduction : reductions_) {
    forget(reduction.work);
    reduction = {};
  }
}

}  // namespace lockstep
