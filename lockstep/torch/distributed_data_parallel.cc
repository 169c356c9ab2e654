#include "lockstep/torch/distributed_data_parallel.h"

#include <ATen/ATen.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/reducer/reducer.h"
#include "lockstep/reducer/trace.h"
#include "lockstep/torch/parameter_set.h"
#include "lockstep/torch/sparse_gradients.h"
#include "lockstep/torch/structure_watch.h"
#include "lockstep/torch/tensor.h"
#include "lockstep/torch/version_shim.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

double ms(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

Clock::time_point after(Clock::time_point start, double milliseconds) {
  return start + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double, std::milli>(milliseconds));
}

void check_options(const DistributedOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t min) {
    if (value >= min) return;
    fail(Code::invalid_argument, "DistributedDataParallel: {} is {}, must be at least {}", name,
         value, min);
  };
  at_least("bucket_bytes_max", options.bucket_bytes_max, 1);
  at_least("first_bucket_bytes_max", options.first_bucket_bytes_max, 1);
  at_least("check_every", options.check_every, 0);
  at_least("accumulate", options.accumulate, 1);
}

std::vector<CommunicationHook> hooks_of(const DistributedOptions& options) {
  if (!options.reduce_in) return {};
  return {compress_to(dtype_of(at::empty({0}, at::dtype(*options.reduce_in))))};
}

// Everything that must be so before anything is sent, and for all ranks to see alike.
ModuleView checked(const ModuleView& module, Group& group, const DistributedOptions& options) {
  check_options(options);
  ModuleView view = module.without(options.leave_out);
  check_same_module(view, group);
  return view;
}

}  // namespace

class DistributedDataParallel::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const ModuleView& module, Group& group, const DistributedOptions& options)
      : group_(group),
        options_(options),
        module_(checked(module, group, options)),
        watch_(module_),
        parameters_(module_, options.sparse),
        hooks_(hooks_of(options)) {
    broadcast_module(module_, group);
    ReducerOptions reducer;
    reducer.buckets = {options.bucket_bytes_max, options.first_bucket_bytes_max};
    reducer.choose_runner = options.choose_runner;
    reducer.check_finite = options.check_finite;
    reducer_ = std::make_unique<Reducer>(group, parameters_.gradients(), reducer);
    reducer_->set_hooks(hooks_);
    layout_ = reducer_->layout();
    parameters_.use_slots(*reducer_);
  }

  void attach() {
    const auto weak = weak_from_this();
    parameters_.attach(
        [weak](std::size_t i) {
          if (const auto self = weak.lock()) self->on_gradient(i);
        },
        [weak](std::size_t i) {
          if (const auto self = weak.lock()) self->on_coming(i);
        });
  }

  void detach() {
    const std::lock_guard lock(mutex_);
    parameters_.detach();
    reducer_.reset();
  }

  void hold(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ += hold ? 1 : -1;
  }

  void reduce_next() {
    const std::lock_guard lock(mutex_);
    reduce_next_ = true;
  }

  bool is_reduced() const {
    const std::lock_guard lock(mutex_);
    return is_reduced_;
  }

  void add_samples(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    if (options_.weighting != Weighting::samples) {
      fail(Code::invalid_argument,
           "add_samples() needs DistributedOptions::weighting = Weighting::samples");
    }
    if (count < 0) fail(Code::invalid_argument, "add_samples({}): must not be negative", count);
    samples_ = samples_.value_or(0) + count;
  }

  void join(const std::function<void()>& loop, const JoinOptions& options) {
    if (join_) fail(Code::invalid_argument, "join() within join(): one at a time");
    join_ = options;
    last_live_ = 0;
    struct Leave {
      std::optional<JoinOptions>& join;
      ~Leave() { join.reset(); }
    } leave{join_};
    loop();
    while (answer()) {
      if (options.step) options.step();
    }
    if (!options.step) broadcast_module(module_, group_, last_live_);
  }

  void sync_buffers() { broadcast_tensors(watch_.buffers(), group_); }

  void set_hooks(std::vector<CommunicationHook> hooks) {
    const std::lock_guard lock(mutex_);
    if (reducer_->collecting()) {
      fail(Code::invalid_argument, "a communication hook was set in the middle of a backward pass");
    }
    hooks_ = std::move(hooks);
    reducer_->set_hooks(hooks_);
  }
  std::vector<CommunicationHook> hooks() const { return hooks_; }

  void begin_step() {
    const std::lock_guard lock(mutex_);
    step_begun_ = Clock::now();
  }

  StepCost last_step() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }

  void start_trace() {
    const std::lock_guard lock(mutex_);
    trace_.emplace();
  }

  void write_trace(const std::string& path) {
    if (!trace_) fail(Code::invalid_argument, "write_trace() without start_trace()");
    lockstep::write_trace(*trace_, group_, path);
  }

 private:
  void on_gradient(std::size_t i) {
    const std::lock_guard lock(mutex_);
    if (reducer_ == nullptr || !expect_gradient(i)) return;
    if (parameters_.is_sparse(i)) return;
    reduce_or_abandon([&] {
      parameters_.put_in_slot(i);
      reducer_->ready(parameters_.slot_of(i));
    });
  }

  // It will be there when the pass ends.
  void on_coming(std::size_t i) {
    const std::lock_guard lock(mutex_);
    if (reducer_ != nullptr) expect_gradient(i);
  }

  // False: this pass reduces nothing.
  bool expect_gradient(std::size_t i) {
    parameters_.set_fresh(i, true);
    if (!reducer_->collecting()) is_reduced_ = false;
    if (held_ > 0 || in_micro_pass_) return false;
    if (reducer_->collecting()) return true;
    if (!reduce_next_ && micro_passes_ + 1 < options_.accumulate) {
      in_micro_pass_ = true;
      shim::at_end_of_backward([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->on_micro_end();
      });
      return false;
    }
    begin_pass();
    shim::at_end_of_backward([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_end();
    });
    return true;
  }

  void on_micro_end() {
    const std::lock_guard lock(mutex_);
    in_micro_pass_ = false;
    ++micro_passes_;
  }

  void on_end() {
    const std::lock_guard lock(mutex_);
    if (reducer_ == nullptr || !reducer_->collecting()) return;
    reduce_or_abandon([&] { end_pass(true); });
  }

  // A rank that has no data any more takes part in a pass of the others; false: there is none.
  bool answer() {
    const std::lock_guard lock(mutex_);
    Part part = part_of_pass(false);
    pass_begun_ = Clock::now();
    reducer_->begin(part);
    bool goes_on = false;
    reduce_or_abandon([&] {
      goes_on = reducer_->anybody_live();
      if (goes_on) end_pass(false);
    });
    return goes_on;
  }

  Part part_of_pass(bool live) {
    Part part;
    part.live = live;
    part.announced = join_.has_value();
    part.micro_passes = micro_passes_ + 1;
    if (join_ && join_->divide_by == JoinOptions::DivideBy::live_ranks) {
      part.divisor = Divisor::live_ranks;
    }
    if (options_.weighting == Weighting::samples) {
      part.divisor = Divisor::weights;
      part.announced = true;
      part.weight = samples_.value_or(0);
    }
    return part;
  }

  void begin_pass() {
    if (const auto change = watch_.change()) {
      fail(Code::invalid_argument,
           "{} after the module was wrapped in DistributedDataParallel: wrap the module anew when "
           "it has all its parameters",
           *change);
    }
    const std::string trouble = parameters_.trouble();
    if (!trouble.empty()) fail(Code::invalid_argument, "{}", trouble);
    if (options_.weighting == Weighting::samples && !samples_) {
      fail(Code::invalid_argument,
           "Weighting::samples: say by add_samples() how many samples the loss is the sum of, "
           "before backward()");
    }
    pass_begun_ = Clock::now();
    reducer_->begin(part_of_pass(true));
  }

  void end_pass(bool live) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_.is_sparse(i)) continue;
      const std::size_t slot = parameters_.slot_of(i);
      if (reducer_->is_ready(slot)) continue;
      if (live && (parameters_.is_fresh(i) || parameters_.is_replaced(i))) {
        parameters_.put_in_slot(i);
        reducer_->ready(slot);
      } else {
        parameters_.put_absent(i, !live);
        reducer_->absent(slot);
      }
    }
    if (join_) last_live_ = reducer_->first_live();
    const std::int64_t divisor = reducer_->divisor();
    reducer_->finish();
    if (layout_ != reducer_->layout()) {
      parameters_.follow_slots(*reducer_);
      layout_ = reducer_->layout();
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_.is_sparse(i)) {
        reduce_sparse_gradient(i, live, divisor);
      } else {
        parameters_.settle(i, reducer_->produced(parameters_.slot_of(i)));
      }
    }
    samples_.reset();
    micro_passes_ = 0;
    reduce_next_ = false;
    is_reduced_ = true;
    ++passes_;
    note_cost(divisor);
    after_pass();
  }

  void reduce_sparse_gradient(std::size_t i, bool live, std::int64_t divisor) {
    const bool has = live && parameters_.is_fresh(i);
    const at::Tensor& parameter = parameters_.tensor(i);
    at::Tensor& gradient = parameter.mutable_grad();
    const at::Tensor sum =
        reduce_sparse(has ? gradient : at::Tensor(), parameter, std::max<std::int64_t>(divisor, 1),
                      group_, parameters_.name(i));
    if (sum.defined()) gradient = sum;
    parameters_.settle(i, true);
  }

  // What the ranks do together when the gradients are there: the same on all, in the same passes.
  void after_pass() {
    if (options_.buffers == BufferSync::after_backward) {
      broadcast_tensors(watch_.buffers(), group_, join_ ? last_live_ : 0);
    }
    if (reducer_->not_finite() && !std::exchange(not_finite_reported_, true)) {
      const std::string what = reducer_->describe_not_finite();
      if (group_.rank() == 0) {
        log_warning("ddp", "step {}: {}; further ones are not reported", passes_, what);
      }
    }
    if (options_.check_every > 0 && passes_ % options_.check_every == 0 && !join_) {
      check_replicas(module_, group_, fmt::format("after {} backward passes", passes_));
    }
  }

  void note_cost(std::int64_t divisor) {
    const auto now = Clock::now();
    cost_.forward_ms = step_begun_ ? ms(pass_begun_ - *step_begun_) : 0;
    cost_.backward_ms = ms(now - pass_begun_);
    cost_.exposed_comm_ms = reducer_->exposed_ms();
    cost_.bytes_reduced = reducer_->bytes_reduced();
    cost_.buckets = static_cast<int>(reducer_->bucket_count());
    cost_.bucket_times = reducer_->bucket_times();
    cost_.divided_by = divisor;
    cost_.not_finite = reducer_->not_finite();
    if (trace_) add_to_trace(now);
    step_begun_.reset();
  }

  void add_to_trace(Clock::time_point now) {
    if (step_begun_) trace_->add("forward", Trace::Track::step, *step_begun_, pass_begun_);
    trace_->add("backward", Trace::Track::step, pass_begun_, now, cost_.bytes_reduced);
    trace_->add("wait for buckets", Trace::Track::step, after(now, -reducer_->finish_ms()), now);
    for (std::size_t b = 0; b < cost_.bucket_times.size(); ++b) {
      const BucketTimes& times = cost_.bucket_times[b];
      trace_->add("bucket", Trace::Track::buckets, after(pass_begun_, times.launch_ms),
                  after(pass_begun_, times.done_ms), times.bytes, static_cast<int>(b));
    }
  }

  template <class Call>
  void reduce_or_abandon(const Call& call) {
    try {
      call();
    } catch (...) {
      reducer_->abandon();
      throw;
    }
  }

  // Constant after construction.
  Group& group_;
  const DistributedOptions options_;
  const ModuleView module_;

  mutable std::mutex mutex_;  // two threads may be in backward passes; guards all below
  StructureWatch watch_;
  ParameterSet parameters_;
  std::vector<CommunicationHook> hooks_;
  std::unique_ptr<Reducer> reducer_;
  int layout_ = 0;
  int held_ = 0;  // guards of no_sync() that live
  // Of DistributedOptions::accumulate: passes since the last one that reduced.
  std::int64_t micro_passes_ = 0;
  bool in_micro_pass_ = false;
  bool reduce_next_ = false;
  bool is_reduced_ = false;
  std::optional<std::int64_t> samples_;
  std::optional<JoinOptions> join_;
  int last_live_ = 0;  // the first rank that had data in the last pass of a join
  std::int64_t passes_ = 0;
  bool not_finite_reported_ = false;
  std::optional<Clock::time_point> step_begun_;
  Clock::time_point pass_begun_;
  StepCost cost_;
  std::optional<Trace> trace_;
};

DistributedDataParallel::DistributedDataParallel(const ModuleView& module, Group& group,
                                                 DistributedOptions options)
    : impl_(std::make_shared<Impl>(module, group, options)) {
  impl_->attach();
}

DistributedDataParallel::~DistributedDataParallel() {
  impl_->detach();
}

DistributedDataParallel::NoSync::NoSync(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->hold(true);
}
DistributedDataParallel::NoSync::~NoSync() {
  impl_->hold(false);
}
DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(impl_);
}

void DistributedDataParallel::reduce_next() {
  impl_->reduce_next();
}

bool DistributedDataParallel::is_reduced() const {
  return impl_->is_reduced();
}

void DistributedDataParallel::join(const std::function<void()>& loop, const JoinOptions& options) {
  impl_->join(loop, options);
}

void DistributedDataParallel::add_samples(std::int64_t count) {
  impl_->add_samples(count);
}

void DistributedDataParallel::sync_buffers() {
  impl_->sync_buffers();
}

void DistributedDataParallel::set_hook(CommunicationHook hook) {
  std::vector<CommunicationHook> hooks;
  if (hook) hooks.push_back(std::move(hook));
  impl_->set_hooks(std::move(hooks));
}

void DistributedDataParallel::add_hook(CommunicationHook hook) {
  auto hooks = impl_->hooks();
  hooks.push_back(std::move(hook));
  impl_->set_hooks(std::move(hooks));
}

void DistributedDataParallel::begin_step() {
  impl_->begin_step();
}

StepCost DistributedDataParallel::last_step() const {
  return impl_->last_step();
}

void DistributedDataParallel::start_trace() {
  impl_->start_trace();
}

void DistributedDataParallel::write_trace(const std::string& path) {
  impl_->write_trace(path);
}

}  // namespace lockstep
