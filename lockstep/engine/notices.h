// Notices: lines for people that come up while a lock is held, and are said when none is, since a
// reader of standard error may be slow.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

class Notices {
 public:
  // `who` is whom log lines speak of.
  explicit Notices(std::string who) : who_(std::move(who)) {}

  void post(std::string line);
  // Says what was posted, oldest first. The caller holds no lock. One load when there is nothing.
  void say();

 private:
  const std::string who_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
};

}  // namespace lockstep
