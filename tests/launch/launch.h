// Runs the real `lockstep run` for a test, and looks at what it leaves behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/env/fd.h"
#include "lockstep/env/temporary_folder.h"

namespace lockstep::launch_test {

using std::chrono::milliseconds;

struct LaunchSetup {
  std::vector<std::string> environment{};  // "NAME=value" added; "NAME" removed
  std::vector<int> cores{};                // the launcher's affinity mask; empty: the test's
  bool one_pipe = false;                   // standard error goes where standard output goes
  bool terminal = false;                   // both are a new terminal, whose foreground it is
  std::string cgroup{};                    // a folder of a control group to join
  int ignored_signal = 0;                  // ignored by whoever started it, as with nohup
};

struct Outcome {
  int status = -1;  // exit status, or 128 + the signal that killed the launcher
  std::string out, err;
  double seconds = 0;
};

class Launch {
 public:
  // Starts `lockstep run <arguments>`.
  explicit Launch(const std::vector<std::string>& arguments, const LaunchSetup& setup = {});
  // Kills what is left.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal);
  // Types on its terminal.
  void type(const std::string& text);
  // Reads until standard output holds `text` `times` times. Fails the test after 20 s.
  void wait_for_output(const std::string& text, int times = 1);
  // The same for standard error; returns all of it.
  const std::string& wait_for_error(const std::string& text);
  // Stops reading for good.
  void close_output() { out_pipe_.reset(); }
  // Waits for its end. Fails the test after `limit`.
  Outcome wait(milliseconds limit = milliseconds(30'000));
  // Waits until no process started by it is left, itself included. False after `limit`.
  bool nothing_left(milliseconds limit = milliseconds(2'000)) const;
  const std::string& output() const { return out_; }

 private:
  std::vector<pid_t> processes() const;
  bool read_some(milliseconds limit);

  std::string mark_;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::chrono::steady_clock::time_point start_;
  Fd out_pipe_, err_pipe_;
  std::string out_, err_;
};

// `lockstep run <arguments>` from start to end.
Outcome run_launch(const std::vector<std::string>& arguments, const LaunchSetup& setup = {});

// A program from tests/launch.
std::string rank_helper();

std::vector<std::string> lines_of(const std::string& text);
std::string read_text(const std::string& path);
bool process_exists(pid_t pid);
// Whether somebody listens on 127.0.0.1:`port`.
bool is_listening(int port);
// The number that follows `name` in `text`; -1 if it is not there.
int number_after(const std::string& text, const std::string& name);

}  // namespace lockstep::launch_test
