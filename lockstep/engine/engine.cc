#include "lockstep/engine/engine.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMessageChunkBytes = 4 << 20;
constexpr std::int64_t kTreeChunkBytes = 1 << 20;
constexpr std::int64_t kCacheLineBytes = 64;
// A wait in the arena looks up from time to time, in case a wake-up came just before it slept.
constexpr int kArenaWaitMsMax = 100;
// The progress thread looks for work by itself for so long after the last submit.
constexpr std::int64_t kAttentiveUs = 1'000'000;
constexpr std::size_t kPlansMax = 4096;
constexpr std::chrono::milliseconds kCauseWait{200};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

std::string join(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return ranks.size() == 1 ? "rank " + text : "ranks " + text;
}

}  // namespace

// An operation from submit to completion. Its own fields belong to the driver until done_ is set.
class Engine::Task final : public internal::Completion {
 public:
  Task(Engine* engine, const Request& request, std::shared_ptr<const Plan> plan,
       const Announcement& announcement, const SharedRegion* region)
      : engine_(engine),
        request_(request),
        plan_(std::move(plan)),
        announcement_(announcement),
        region_(region) {}

  void wait() override {
    engine_->wait_for(*this);
    if (error_) throw *error_;
  }
  bool done() override {
    if (!is_done()) engine_->poll();
    return is_done();
  }
  std::optional<Error> error() override { return is_done() ? error_ : std::nullopt; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }

 private:
  friend class Engine;

  Engine* const engine_;  // outlives the operation: its destructor completes what is left
  const Request request_;
  const std::shared_ptr<const Plan> plan_;
  const Announcement announcement_;
  const SharedRegion* const region_;
  std::optional<Execution> execution_;
  std::optional<Deadline> deadline_;
  std::optional<Error> error_;
  std::atomic<bool> done_{false};
};

Engine::Engine(const Fabric& fabric, EngineOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      abort_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_fd_.valid() || !abort_fd_.valid()) fail_errno(errno, "cannot make an event descriptor");
  progress_ = std::thread([this] { progress_loop(); });
}

Engine::~Engine() {
  break_with(Error(Code::cancelled, "the group was closed"));
  stop_ = true;
  wake();
  progress_.join();
  const std::lock_guard driving(drive_mutex_);
  finish_all();
}

void Engine::watch(int fd, std::function<bool()> on_readable) {
  {
    const std::lock_guard lock(mutex_);
    watched_[fd] = std::move(on_readable);
  }
  wake();
}

void Engine::add_region(const SharedRegion* region) {
  const std::lock_guard lock(mutex_);
  regions_.push_back(region);
}

void Engine::remove_region(const SharedRegion* region) {
  const std::lock_guard lock(mutex_);
  std::erase(regions_, region);
}

const SharedRegion* Engine::region_of(const TensorView& data) const {
  const auto* begin = static_cast<const std::byte*>(data.data);
  for (const SharedRegion* region : regions_) {
    const std::byte* own = region->by_rank[static_cast<std::size_t>(fabric_.rank)];
    if (data.count > 0 && begin >= own && begin + data.bytes() <= own + region->bytes) {
      return region;
    }
  }
  return nullptr;
}

std::shared_ptr<const Plan> Engine::plan_for(const Request& request, Needs needs,
                                             const Algorithm& by) {
  const TensorView& sized =
      request.operation == Operation::all_gather ? request.input : request.data;
  const std::size_t element_bytes = size_of(sized.dtype);
  const PlanKey key{request.operation, needs, request.root, sized.count, element_bytes};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  std::int64_t chunk_bytes = kMessageChunkBytes;
  if (request.operation == Operation::broadcast) chunk_bytes = kTreeChunkBytes;
  if (needs != Needs::messages) {
    chunk_bytes = static_cast<std::int64_t>(fabric_.arena->scratch_bytes() / 2);
  }
  const auto element = static_cast<std::int64_t>(element_bytes);
  const Shape shape{request.operation,    fabric_.ranks, fabric_.rank,
                    request.root,         sized.count,   kCacheLineBytes / element,
                    chunk_bytes / element};
  if (plans_.size() >= kPlansMax) plans_.clear();
  return plans_[key] = std::make_shared<const Plan>(by.make(shape));
}

std::shared_ptr<Engine::Task> Engine::enqueue(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  const SharedRegion* region = region_of(request.data);
  const Reach reach{region != nullptr && fabric_.arena != nullptr, fabric_.arena != nullptr};
  const Algorithm& algorithm = choose(request.operation, reach);
  const TensorView& sized =
      request.operation == Operation::all_gather ? request.input : request.data;
  Announcement announcement;
  announcement.sequence = sequence_++;
  announcement.operation = static_cast<std::uint8_t>(request.operation);
  announcement.needs = static_cast<std::uint8_t>(algorithm.needs);
  announcement.dtype = sized.dtype;
  announcement.reduce = request.reduce;
  announcement.root = request.root;
  announcement.count = sized.count;
  if (algorithm.needs == Needs::shared_data) {
    const std::byte* own = region->by_rank[static_cast<std::size_t>(fabric_.rank)];
    const auto offset = static_cast<const std::byte*>(request.data.data) - own;
    announcement.place = region->id << 40 | static_cast<std::uint64_t>(offset);
  }
  auto task = std::make_shared<Task>(this, request, plan_for(request, algorithm.needs, algorithm),
                                     announcement, region);
  queue_.push_back(task);
  pending_.fetch_add(1);
  last_submit_us_.store(now_us(), std::memory_order_relaxed);
  return task;
}

Work Engine::submit(const Request& request) {
  auto task = enqueue(request);
  if (options_.takeover.count() == 0 || sleeping_.load()) wake();
  return Work(std::move(task));
}

void Engine::run(const Request& request) {
  const auto task = enqueue(request);
  task->wait();
}

void Engine::wait_for(Task& task) {
  if (task.is_done()) return;
  callers_driving_.fetch_add(1);
  {
    const std::lock_guard driving(drive_mutex_);
    while (!task.is_done()) {
      drive();
      if (task.is_done()) break;
      if (const auto first = front()) block(*first);
    }
  }
  callers_driving_.fetch_sub(1);
  // What is left in the queue needs the progress thread again.
  if (pending_.load() > 0 && (options_.takeover.count() == 0 || sleeping_.load())) wake();
}

bool Engine::poll() {
  if (pending_.load(std::memory_order_acquire) == 0) return true;
  const std::unique_lock driving(drive_mutex_, std::try_to_lock);
  if (driving.owns_lock()) drive();
  return pending_.load(std::memory_order_acquire) == 0;
}

std::shared_ptr<Engine::Task> Engine::front() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void Engine::drive() {
  last_driven_us_.store(now_us(), std::memory_order_relaxed);
  while (const auto task = front()) {
    if (failed_.load()) return finish_all();
    try {
      if (!advance(*task)) return;
    } catch (const Error& error) {
      if (error.code() == Code::peer_lost) await_cause();
      fail_here(error);
      return finish_all();
    } catch (const std::exception& error) {  // no memory for scratch, say
      fail_here(Error(Code::io, fmt::format("rank {}: {}: {}", fabric_.rank,
                                            describe(task->announcement_), error.what())));
      return finish_all();
    }
    if (task->request_.operation == Operation::all_reduce) {
      bytes_reduced_.fetch_add(static_cast<std::int64_t>(task->request_.data.bytes()));
    }
    finish(task, std::nullopt);
  }
}

bool Engine::advance(Task& task) {
  if (!task.execution_) {
    const std::size_t needed =
        static_cast<std::size_t>(task.plan_->scratch_count) * size_of(task.announcement_.dtype);
    if (task.plan_->needs == Needs::messages && private_scratch_.size() < needed) {
      private_scratch_.resize(needed);
    }
    task.execution_.emplace(task.request_, task.plan_, task.announcement_, fabric_, task.region_,
                            private_scratch_.data());
    task.deadline_.emplace(Deadline::after(options_.operation_timeout));
  }
  Execution& execution = *task.execution_;
  if (execution.advance()) return true;
  if (someone_left_.load() && fabric_.arena != nullptr) {
    // Whoever left had arrived everywhere it ever will before it said so.
    if (execution.advance()) return true;
    const std::lock_guard lock(mutex_);
    for (const int rank : execution.blocked_on()) {
      if (const auto left = left_.find(rank); left != left_.end()) {
        fail(Code::peer_lost, "rank {} waits in {} for rank {}, which {}", fabric_.rank,
             describe(task.announcement_), rank, left->second);
      }
    }
  }
  if (task.deadline_->passed()) {
    fail(Code::timeout, "rank {} waited {:.1f} s in {} for {}", fabric_.rank,
         task.deadline_->elapsed_s(), describe(task.announcement_), join(execution.blocked_on()));
  }
  return false;
}

void Engine::block(const Task& task) {
  const Execution& execution = *task.execution_;
  const int left_ms = task.deadline_->remaining_ms();
  if (fabric_.arena != nullptr) {
    if (execution.laggard() < 0) return;
    fabric_.arena->wait_for(execution.laggard(), execution.barrier(),
                            std::chrono::milliseconds(std::min(left_ms, kArenaWaitMsMax)),
                            options_.spin);
    return;
  }
  poll_fds_.clear();
  poll_fds_.push_back({abort_fd_.get(), POLLIN, 0});
  for (const Link* link : fabric_.links) {
    if (link != nullptr && link->wanted_events() != 0) {
      poll_fds_.push_back({link->fd(), link->wanted_events(), 0});
    }
  }
  // A peer is seldom later than going to sleep and being woken takes.
  const auto awake_until = Clock::now() + options_.spin;
  while (Clock::now() < awake_until) {
    if (::poll(poll_fds_.data(), poll_fds_.size(), 0) != 0) return;
  }
  ::poll(poll_fds_.data(), poll_fds_.size(), left_ms);
}

void Engine::finish(const std::shared_ptr<Task>& task, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(queue_.front() == task);
    queue_.pop_front();
  }
  task->error_ = std::move(error);
  task->done_.store(true, std::memory_order_release);
  pending_.fetch_sub(1);
}

void Engine::finish_all() {
  while (const auto task = front()) {
    std::optional<Error> cause;
    {
      const std::lock_guard lock(mutex_);
      cause = failure_;
    }
    finish(task, cause);
  }
}

void Engine::await_cause() {
  const bool own_ears = std::this_thread::get_id() == progress_id_.load();
  for (auto deadline = Deadline::after(kCauseWait); !failed_ && !deadline.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!own_ears) continue;  // the progress thread listens
    std::map<int, std::function<bool()>> watched;
    {
      const std::lock_guard lock(mutex_);
      watched = watched_;
    }
    for (const auto& [fd, callback] : watched) callback();
  }
}

bool Engine::set_failure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = error;
  }
  failed_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(abort_fd_.get(), &one, sizeof(one));
  if (fabric_.arena != nullptr) fabric_.arena->wake_all();
  return true;
}

void Engine::fail_here(const Error& error) {
  if (set_failure(error) && options_.on_failure) options_.on_failure(error);
}

void Engine::break_with(const Error& error) {
  set_failure(error);
  const std::unique_lock driving(drive_mutex_, std::try_to_lock);
  if (driving.owns_lock()) finish_all();
}

std::optional<Error> Engine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::peer_left(int rank, const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    left_[rank] = how;
  }
  someone_left_ = true;
  if (fabric_.arena != nullptr) fabric_.arena->wake_all();
}

void Engine::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof(one));
}

void Engine::progress_loop() {
  progress_id_ = std::this_thread::get_id();
  std::vector<pollfd> fds;
  while (!stop_) {
    fds.assign(1, {wake_fd_.get(), POLLIN, 0});
    std::map<int, std::function<bool()>> watched;
    {
      const std::lock_guard lock(mutex_);
      watched = watched_;
    }
    for (const auto& [fd, callback] : watched) fds.push_back({fd, POLLIN, 0});
    const int sleep_ms = progress(fds);
    ::poll(fds.data(), fds.size(), sleep_ms);
    sleeping_ = false;
    if ((fds[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_fd_.get(), &count, sizeof(count));
    }
    std::size_t next = 1;
    for (const auto& [fd, callback] : watched) {
      if (fds[next++].revents == 0 || callback()) continue;
      const std::lock_guard lock(mutex_);
      watched_.erase(fd);
    }
  }
}

int Engine::progress(std::vector<pollfd>& fds) {
  const int takeover_ms = static_cast<int>(options_.takeover.count());
  if (pending_.load() > 0 && callers_driving_.load() == 0) {
    const bool due = now_us() - last_driven_us_.load() >= takeover_ms * 1000;
    if (!due) return takeover_ms;
    std::unique_lock driving(drive_mutex_, std::try_to_lock);
    if (!driving.owns_lock()) return std::max(takeover_ms, 1);
    drive();
    const auto task = front();
    if (task == nullptr || !task->execution_) return 0;
    if (fabric_.arena != nullptr) {
      if (takeover_ms > 0) return takeover_ms;
      const int laggard = task->execution_->laggard();
      const std::uint32_t barrier = task->execution_->barrier();
      driving.unlock();
      // Not for longer: the descriptors need an ear, too.
      if (laggard >= 0) {
        fabric_.arena->wait_for(laggard, barrier, std::chrono::milliseconds(1),
                                std::chrono::microseconds(0));
      }
      return 0;
    }
    for (const Link* link : fabric_.links) {
      if (link != nullptr && link->wanted_events() != 0) {
        fds.push_back({link->fd(), link->wanted_events(), 0});
      }
    }
    return std::min(task->deadline_->remaining_ms(), 1000);
  }
  if (takeover_ms > 0 && now_us() - last_submit_us_.load() < kAttentiveUs) return takeover_ms;
  sleeping_ = true;
  // A submit between the look at pending_ and here has not seen sleeping_.
  return pending_.load() > 0 && callers_driving_.load() == 0 ? 0 : -1;
}

}  // namespace lockstep
