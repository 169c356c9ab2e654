#include "lockstep/engine/task.h"

namespace lockstep {

namespace {
// Tasks that are kept.
constexpr std::size_t kPoolMax = 256;
}  // namespace

std::unique_ptr<Engine::Task> Engine::Pool::take() {
  if (Task* task = spare.exchange(nullptr, std::memory_order_acquire)) {
    return std::unique_ptr<Task>(task);
  }
  const std::lock_guard lock(mutex);
  if (free.empty()) return nullptr;
  auto task = std::move(free.back());
  free.pop_back();
  return task;
}

void Engine::Pool::give(std::unique_ptr<Task> task) {
  if (closed.load(std::memory_order_acquire)) return;
  Task* none = nullptr;
  if (spare.compare_exchange_strong(none, task.get())) {
    task.release();
    if (closed.load()) close();  // at this moment
    return;
  }
  const std::lock_guard lock(mutex);
  if (!closed && free.size() < kPoolMax) free.push_back(std::move(task));
}

// Tasks hold their pool, so it may not hold any for good.
void Engine::Pool::close() {
  closed = true;
  const std::unique_ptr<Task> last(spare.exchange(nullptr));
  const std::lock_guard lock(mutex);
  free.clear();
}

}  // namespace lockstep
