#include "lockstep/group/rank_threads.h"

#include <sys/random.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/env/cpu.h"
#include "lockstep/env/fd.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

namespace {

// One call at a time: two would compute on the same cores, and the libraries' numbers of threads
// are the process's.
class OnlyCall {
 public:
  OnlyCall() {
    if (running().exchange(true)) {
      fail(Code::unsupported,
           "ranks as threads run in this process already: they do not nest, and one call runs at a "
           "time; use the group that is given to the rank, or parts of it (Group::split)");
    }
  }
  ~OnlyCall() { running() = false; }
  OnlyCall(const OnlyCall&) = delete;
  OnlyCall& operator=(const OnlyCall&) = delete;

 private:
  static std::atomic<bool>& running() {
    static std::atomic<bool> flag{false};
    return flag;
  }
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// Whether a rank failed only because another one did.
bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& failure) {
    return failure.code() == Code::cancelled || failure.code() == Code::peer_lost;
  } catch (...) {
    return false;
  }
}

class Failures {
 public:
  void add(int rank, const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    all_.push_back({rank, error});
  }

  // Throws the cause if there is one.
  void rethrow(int ranks) const {
    const std::lock_guard lock(mutex_);
    if (all_.empty()) return;
    const Failure* cause = &all_.front();
    for (const Failure& failure : all_) {
      if (is_consequence(failure.error)) continue;
      cause = &failure;
      break;
    }
    const std::string who = fmt::format("rank {} of {}", cause->rank, ranks);
    try {
      std::rethrow_exception(cause->error);
    } catch (const Error& error) {
      fail(error.code(), "{}: {}", who, error.what());
    } catch (...) {
      log_error(who, "{}", text_of(cause->error));
      throw;
    }
  }

 private:
  struct Failure {
    int rank;
    std::exception_ptr error;
  };
  mutable std::mutex mutex_;
  std::vector<Failure> all_;  // guarded by mutex_; in the order in which they happened
};

std::string new_secret() {
  std::array<std::uint8_t, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail_errno(errno, "cannot draw a random secret");
  }
  return to_hex(bytes);
}

// What all ranks have in common.
Settings common_settings(int ranks) {
  if (ranks < 1) {
    fail(Code::invalid_argument, "ranks as threads: {} ranks asked for, at least 1 is needed",
         ranks);
  }
  Settings settings = Settings::from_environment();
  if (settings.master_port != 0) {
    fail(Code::invalid_argument,
         "ranks as threads: a launcher has started this process as rank {} of {} (RANK, "
         "WORLD_SIZE). Start the program without it, or join the launcher's job with "
         "lockstep::init()",
         settings.rank, settings.world_size);
  }
  settings.world_size = ranks;
  settings.secret = new_secret();
  if (settings.compute_threads == 0) {
    settings.compute_threads = threads_per_rank(usable_core_count(), ranks);
  }
  return settings;
}

void stay_on(const std::vector<int>& cores) {
  try {
    pin_this_thread(cores);
  } catch (const Error& error) {
    log_warning("", "ranks as threads: not pinned to their cores: {}", error.what());
  }
}

void run_rank(const Settings& settings, const std::vector<int>& cores, const RankBody& body,
              Failures& failures) {
  try {
    stay_on(cores);
    Group group(settings);
    try {
      body(group, settings.compute_threads);
    } catch (...) {
      // Noted before the others can hear of it: theirs come later.
      failures.add(settings.rank, std::current_exception());
      group.abort(text_of(std::current_exception()));
    }
  } catch (...) {
    failures.add(settings.rank, std::current_exception());
  }
}

}  // namespace

void run_rank_threads(int ranks, const RankBody& body) {
  const OnlyCall only;
  const Settings common = common_settings(ranks);
  const std::vector<int> cores = allowed_cores();
  Fd listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_address(listener).port;
  Failures failures;
  // No rank begins before all have a thread: those that had begun would wait for the others.
  std::promise<bool> start;
  const std::shared_future<bool> started = start.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      Settings settings = common;
      settings.rank = rank;
      settings.master_port = port;
      if (rank == 0) settings.store_fd = listener.get();
      threads.emplace_back([settings, &cores, &body, &failures, started, ranks] {
        if (!started.get()) return;
        run_rank(settings, cores_of_rank(cores, settings.rank, ranks), body, failures);
      });
    }
  } catch (const std::exception& error) {
    start.set_value(false);
    fail(Code::io, "ranks as threads: cannot start the thread of rank {} of {}: {}", threads.size(),
         ranks, error.what());
  }
  if (ranks > 1) listener.release();  // rank 0's store closes it
  start.set_value(true);
  threads.clear();  // joins
  failures.rethrow(ranks);
}

}  // namespace lockstep
