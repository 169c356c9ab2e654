#include "lockstep/engine/engine.h"

#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/task.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kAlignBytes = 64;
// A wait in the arena looks up from time to time, in case a wake-up came just before it slept.
constexpr int kArenaWaitMsMax = 100;
// The progress thread looks for work by itself for so long after the last submit.
constexpr std::int64_t kAttentiveUs = 1'000'000;
// A rank that waits for its neighbours and for messages at once looks so often at the one while it
// sleeps on the other.
constexpr int kMixedWaitMs = 1;
// A rank that waits for a message stays awake for so long after the last one: some times what
// falling asleep and waking up cost. Longer would keep a core from a rank that shares it unknown to
// this one (each in its own container), and a line has nothing for a rank for milliseconds.
constexpr std::chrono::microseconds kLinkSpin{200};
constexpr std::chrono::milliseconds kCauseWait{200};
// A rank that waits so long looks whether its neighbours are in the same operation at all. At once
// would be too early: those who are on their way could not say any more what they called.
constexpr double kNeighbourPatienceS = 0.1;
// Without a move for so long, those that are waited for over links are asked: a message each.
constexpr std::chrono::milliseconds kPeerPatience{1'000};
// How long a wait may be before its operation's time is counted.
constexpr int kFirstLookMs = 20;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

// Good to some milliseconds, in a fifth of the time.
std::int64_t coarse_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

template <class Call>
class AtEnd {
 public:
  explicit AtEnd(Call call) : call_(std::move(call)) {}
  ~AtEnd() { call_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const Call call_;
};

}  // namespace

Engine::Engine(const Fabric& fabric, EngineOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      pool_(std::make_shared<Pool>()),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      abort_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stall_(options_.stall_after),
      quiet_(kPeerPatience),
      planner_(fabric_, options_.planner),
      sent_to_(static_cast<std::size_t>(fabric.ranks)),
      received_from_(static_cast<std::size_t>(fabric.ranks)),
      recorder_(fabric.rank, fabric.ranks, options_.record),
      notices_(fmt::format("rank {}", fabric.rank)),
      takeover_ms_(static_cast<int>(options_.takeover.count())) {
  if (!wake_fd_.valid() || !abort_fd_.valid()) fail_errno(errno, "cannot make an event descriptor");
  alone_ = std::make_unique<Task>(this);
  poll_fds_.reserve(fabric_.links.size() + 1);
  progress_ = std::thread([this] { progress_loop(); });
}

Engine::~Engine() {
  if (failed_) {
    const std::lock_guard driving(drive_mutex_);
    finish_all();
  }
  stop_ = true;  // from here on a failure is none that a record is written of
  break_with(Error(Code::cancelled, "the group was closed"));
  wake();
  progress_.join();
  {
    const std::lock_guard driving(drive_mutex_);
    finish_all();
  }
  notices_.say();
  pool_->close();
}

void Engine::watch(int fd, std::function<bool()> on_readable) {
  {
    const std::lock_guard lock(mutex_);
    watched_[fd] = std::move(on_readable);
    ++watched_changes_;
  }
  wake();
}

void Engine::add_region(const SharedRegion* region) {
  const std::lock_guard lock(mutex_);
  planner_.add_region(region);
}

void Engine::remove_region(const SharedRegion* region) {
  const std::lock_guard lock(mutex_);
  planner_.remove_region(region);
}

// Operations of the whole group are numbered together, sends by pair.
std::uint64_t Engine::number_of(const Request& request) {
  if (request.operation != Operation::send) return sequence_++;
  const auto peer = static_cast<std::size_t>(request.peer);
  return request.root == fabric_.rank ? sent_to_[peer]++ : received_from_[peer]++;
}

// Needs mutex_.
void Engine::prepare(Task& task, const Request& request) {
  if (failure_) throw *failure_;
  task.decision_.take(planner_.decide(request));
  task.decision_.announcement.sequence = number_of(request);
  task.request_ = request;
  task.started_ = false;
  task.error_.reset();
  task.done_.store(false, std::memory_order_relaxed);
}

void Engine::record(Task& task) {
  const Announcement& announcement = task.decision_.announcement;
  task.ticket_ = recorder_.submitted(
      announcement, task.decision_.algorithm->name,
      static_cast<std::size_t>(announcement.count) * size_of(announcement.dtype),
      &task == alone_.get());
}

Work Engine::enqueue(const Request& request) {
  std::unique_ptr<Task> task = pool_->take();
  if (task == nullptr) task = std::make_unique<Task>(this);
  const std::lock_guard lock(mutex_);
  prepare(*task, request);
  record(*task);
  queue_.push_back(task.get());
  task->retain();
  Work work(task.release());  // before somebody else can complete the task and let go of it
  pending_.fetch_add(1);
  last_submit_us_.store(coarse_us(), std::memory_order_relaxed);
  return work;
}

Work Engine::submit(const Request& request) {
  Work work = enqueue(request);
  if (takeover_ms_.load() == 0 || sleeping_.load()) wake();
  return work;
}

void Engine::run(const Request& request) {
  if (pending_.load(std::memory_order_acquire) == 0) {
    const AtEnd say([this] { notices_.say(); });  // when the lock is gone
    const std::lock_guard driving(drive_mutex_);
    if (pending_.load(std::memory_order_acquire) == 0) return run_alone(request);
  }
  enqueue(request).wait();
}

// The way of a blocking call when nothing else is under way: no queue, no handle, few locks.
void Engine::run_alone(const Request& request) {
  Task& task = *alone_;
  {
    const std::lock_guard lock(mutex_);
    prepare(task, request);
  }
  driven_.assign(1, &task);
  bool is_recorded = false;
  try {
    bool is_complete = advance(task);
    record(task);  // now that the others need not wait for it
    is_recorded = true;
    while (!is_complete) {
      block();
      if (failed_.load(std::memory_order_relaxed)) throw *failure();
      is_complete = advance(task);
    }
    complete(task);
  } catch (const std::exception&) {
    if (!is_recorded) record(task);
    fail_task(task);
    write_record();
    driven_.clear();
    throw *failure();
  }
  driven_.clear();
}

// In a handler: what was thrown in `task` becomes the failure of the group, unless it is that.
void Engine::fail_task(Task& task) {
  recorder_.finished(task.ticket_, false);
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() == Code::peer_lost) await_cause();
    fail_here(error);
  } catch (const std::exception& error) {  // no memory for scratch, say
    fail_here(Error(Code::io, fmt::format("rank {}: {}: {}", fabric_.rank,
                                          describe(task.decision_.announcement), error.what())));
  }
}

// What is due when `task` has succeeded.
void Engine::complete(Task& task) {
  if (task.request_.operation == Operation::all_reduce) {
    bytes_reduced_.fetch_add(
        task.request_.count * static_cast<std::int64_t>(size_of(task.request_.dtype)),
        std::memory_order_relaxed);
  }
  if (task.request_.staged_data) task.request_.staged_data->finish();
  recorder_.finished(task.ticket_, true);
  quiet_.complete();
  if (stall_.complete()) {
    notices_.post(fmt::format("{} goes on after {:.0f} s", describe(task.decision_.announcement),
                              stall_.stalled_s()));
    wake();
  }
}

void Engine::wait_for(Task& task) {
  if (task.is_done()) return;
  callers_driving_.fetch_add(1);
  {
    const std::lock_guard driving(drive_mutex_);
    while (!task.is_done()) {
      drive();
      if (!task.is_done()) block();
    }
  }
  callers_driving_.fetch_sub(1);
  notices_.say();
  // What is left in the queue needs the progress thread again.
  if (pending_.load() > 0 && (takeover_ms_.load() == 0 || sleeping_.load())) wake();
}

bool Engine::poll() {
  if (pending_.load(std::memory_order_acquire) == 0) return true;
  {
    const std::unique_lock driving(drive_mutex_, std::try_to_lock);
    if (driving.owns_lock()) drive();
  }
  notices_.say();
  return pending_.load(std::memory_order_acquire) == 0;
}

Engine::Task* Engine::front() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void Engine::look_at_queue() {
  driven_.clear();
  const std::lock_guard lock(mutex_);
  for (Task* task : queue_) {
    if (!driven_.empty() && !task->is_send()) break;
    driven_.push_back(task);
    if (!task->is_send()) break;
  }
}

void Engine::drive() {
  last_driven_us_.store(coarse_us(), std::memory_order_relaxed);
  for (bool completed = true; completed;) {
    completed = false;
    if (failed_.load()) return finish_all();
    look_at_queue();
    for (Task* task : driven_) {
      try {
        if (!advance(*task)) continue;
        complete(*task);
      } catch (const std::exception&) {
        fail_task(*task);
        return finish_all();
      }
      finish(task, std::nullopt);
      driven_.clear();  // out of date
      completed = pending_.load() > 0;
      break;
    }
  }
}

void Engine::start(Task& task) {
  const Plan& plan = *task.decision_.plan;
  const DType dtype = task.request_.dtype;
  const bool own = !plan.needs.shared_scratch || fabric_.arena == nullptr;
  const auto scratch = own ? static_cast<std::size_t>(plan.scratch_count) * size_of(dtype) : 0;
  const auto partials =
      static_cast<std::size_t>(plan.partial_count) * size_of(accumulation_type(dtype));
  const std::size_t partials_at = (scratch + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  // Sends, which go on side by side, need none.
  if (workspace_.size() < partials_at + partials + kAlignBytes) {
    workspace_.resize(partials_at + partials + kAlignBytes);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
  std::byte* base = workspace_.data() + (kAlignBytes - address % kAlignBytes) % kAlignBytes;
  task.execution_.start(task.request_, *task.decision_.plan, task.decision_.announcement,
                        task.decision_.data, task.decision_.input, {base, base + partials_at});
  task.started_ = true;
  task.looked_at_ = false;
  task.deadline_.reset();
  if (&task != alone_.get()) recorder_.started(task.ticket_);
}

bool Engine::advance(Task& task) {
  if (!task.started_) start(task);
  Execution& execution = task.execution_;
  if (execution.advance()) return true;
  // Most operations are complete at the second look, and never see a clock.
  if (!task.looked_at_) {
    task.looked_at_ = true;
    return false;
  }
  if (!task.deadline_) task.deadline_.emplace(Deadline::after(options_.operation_timeout));
  const bool late = task.deadline_->elapsed_s() > kNeighbourPatienceS;
  if (late && !execution.agreed()) execution.check_neighbours();
  const std::uint64_t number = execution.announcement().sequence;
  if (quiet_.look(number, execution.moves()) == StallWatch::Event::stalled) execution.ask_peers();
  watch_for_stall(execution);
  if (someone_left_.load() && fabric_.arena != nullptr) {
    // Whoever left had arrived everywhere it ever will before it said so.
    if (execution.advance()) return true;
    check_departed(task);
  }
  if (task.deadline_->passed()) {
    fail(Code::timeout, "rank {} waited {:.1f} s in {} for {}", fabric_.rank,
         task.deadline_->elapsed_s(), describe(execution.announcement()),
         waits_for(execution, fabric_));
  }
  return false;
}

void Engine::check_departed(Task& task) {
  const std::lock_guard lock(mutex_);
  for (const int rank : task.execution_.blocked_on()) {
    const Link* link = fabric_.links[static_cast<std::size_t>(rank)];
    const bool notices = task.execution_.laggard() < 0 && link->fd() >= 0;
    if (notices) continue;
    if (const auto left = left_.find(rank); left != left_.end()) {
      fail(Code::peer_lost, "rank {} waits in {} for rank {}, which {}", fabric_.rank,
           describe(task.decision_.announcement), rank, left->second);
    }
  }
}

bool Engine::at_barrier_only() const {
  return driven_.size() == 1 && driven_[0]->execution_.laggard() >= 0 && !fabric_.is_link_waiting();
}

int Engine::patience_ms() const {
  int left_ms = std::min(stall_.remaining_ms(), quiet_.remaining_ms());
  for (const Task* task : driven_) {
    left_ms = std::min(left_ms, task->deadline_ ? task->deadline_->remaining_ms() : kFirstLookMs);
  }
  return left_ms;
}

void Engine::block() {
  if (driven_.empty()) return;
  if (at_barrier_only()) {
    const Execution& execution = driven_[0]->execution_;
    fabric_.arena->wait_for(execution.laggard(), execution.barrier(),
                            std::chrono::milliseconds(std::min(patience_ms(), kArenaWaitMsMax)),
                            options_.spin);
    return;
  }
  // Awake for a while after the last move, then asleep.
  std::uint64_t moves = 0;
  bool mixed = false;
  for (const Task* task : driven_) {
    moves += task->execution_.moves();
    mixed = mixed || task->execution_.laggard() >= 0;
  }
  const std::int64_t now = now_us();
  if (moves != moves_) {
    moves_ = moves;
    moved_us_ = now;
  }
  if (now - moved_us_ < std::min(options_.spin, kLinkSpin).count() && !failed_.load()) return;
  poll_fds_.clear();
  poll_fds_.push_back({abort_fd_.get(), POLLIN, 0});
  const std::size_t channels = fabric_.add_link_fds(poll_fds_);
  if (channels > 0 && poll_fds_.size() == 1 && !mixed) {
    const auto idle = [this] { return !failed_.load() && !fabric_.is_link_ready(); };
    const int time_ms = std::min(patience_ms(), kArenaWaitMsMax);
    fabric_.arena->listen(idle, std::chrono::milliseconds(time_ms));
    return;
  }
  mixed = mixed || channels > 0;
  ::poll(poll_fds_.data(), poll_fds_.size(), mixed ? kMixedWaitMs : patience_ms());
}

void Engine::finish(Task* task, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    queue_.erase(std::find(queue_.begin(), queue_.end(), task));
  }
  task->error_ = std::move(error);
  task->done_.store(true, std::memory_order_release);
  pending_.fetch_sub(1);
  task->release();
}

void Engine::watch_for_stall(const Execution& execution) {
  const Announcement& operation = execution.announcement();
  switch (stall_.look(operation.sequence, execution.moves())) {
    case StallWatch::Event::none:
      return;
    case StallWatch::Event::stalled:
      notices_.post(fmt::format("has waited {:.0f} s in {} for {}", stall_.stalled_s(),
                                describe(operation), waits_for(execution, fabric_)));
      break;
    case StallWatch::Event::goes_on:
      notices_.post(
          fmt::format("{} goes on after {:.0f} s", describe(operation), stall_.stalled_s()));
      break;
  }
  wake();  // the caller that drives may wait for long, with a lock held
}

void Engine::write_record() {
  if (stop_ || recorder_.written()) return;
  std::vector<Recorder::Waiting> waiting;
  if (driven_.size() != 1 || driven_[0] != alone_.get()) look_at_queue();
  for (const Task* task : driven_) {
    if (task->started_) waiting.emplace_back(task->ticket_, task->execution_.blocked_on());
  }
  const auto cause = failure();
  if (auto line = recorder_.write(*cause, waiting)) notices_.post(std::move(*line));
}

void Engine::finish_all() {
  write_record();
  while (Task* task = front()) {
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
  {
    const std::unique_lock driving(drive_mutex_, std::try_to_lock);
    if (driving.owns_lock()) finish_all();
  }
  notices_.say();
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
  fds.reserve(fabric_.links.size() + 2);  // itself, the store, the links
  std::map<int, std::function<bool()>> watched;
  std::uint64_t changes = 0;
  while (!stop_) {
    notices_.say();
    fds.assign(1, {wake_fd_.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(changes, watched_changes_) != watched_changes_) watched = watched_;
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
      ++watched_changes_;
    }
  }
}

int Engine::progress(std::vector<pollfd>& fds) {
  const int takeover_ms = takeover_ms_.load();
  if (failed_ && !recorder_.written()) {  // whoever held the lock then may be gone
    const std::unique_lock driving(drive_mutex_, std::try_to_lock);
    if (!driving.owns_lock()) return 1;
    finish_all();
    return 0;
  }
  if (pending_.load() > 0 && callers_driving_.load() == 0) {
    const bool due = coarse_us() - last_driven_us_.load() >= takeover_ms * 1000;
    if (!due) return takeover_ms;
    std::unique_lock driving(drive_mutex_, std::try_to_lock);
    if (!driving.owns_lock()) return std::max(takeover_ms, 1);
    drive();
    if (driven_.empty() || front() == nullptr) return 0;
    if (at_barrier_only()) {
      if (takeover_ms > 0) return takeover_ms;
      const Execution& execution = driven_[0]->execution_;
      const int laggard = execution.laggard();
      const std::uint32_t barrier = execution.barrier();
      driving.unlock();
      // Not for longer: the descriptors need an ear, too.
      fabric_.arena->wait_for(laggard, barrier, std::chrono::milliseconds(1),
                              std::chrono::microseconds(0));
      return 0;
    }
    const std::size_t others = fds.size();
    const std::size_t channels = fabric_.add_link_fds(fds);
    const bool at_barrier = driven_[0]->execution_.laggard() >= 0;
    if (channels > 0 && fds.size() == others && !at_barrier && takeover_ms == 0) {
      driving.unlock();
      // Who drives meanwhile looks for itself.
      const auto idle = [this] {
        const std::unique_lock again(drive_mutex_, std::try_to_lock);
        return again.owns_lock() && !failed_.load() && !fabric_.is_link_ready();
      };
      fabric_.arena->listen(idle, std::chrono::milliseconds(kMixedWaitMs));
      return 0;
    }
    return channels > 0 || at_barrier ? kMixedWaitMs : std::min(patience_ms(), 1000);
  }
  if (takeover_ms > 0 && coarse_us() - last_submit_us_.load() < kAttentiveUs) return takeover_ms;
  sleeping_ = true;
  // A submit between the look at pending_ and here has not seen sleeping_.
  return pending_.load() > 0 && callers_driving_.load() == 0 ? 0 : -1;
}

}  // namespace lockstep
