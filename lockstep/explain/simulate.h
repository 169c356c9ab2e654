// Simulator: plays the plans of all ranks on a machine of given prices, event by event. The same
// plans and prices give the same times, always.
//
// The machine: a rank works on its steps one after the other. A message costs its sender
// `message_us`; messages leave a rank one after the other and arrive one after the other, at
// `byte_us` a byte; the first byte is on its way for `latency_us`. Between ranks of one host that
// costs the same. A barrier ends `barrier_us` after the last rank of a host has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/explain/tally.h"
#include "lockstep/plan/cost.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

// A stretch of a rank's time: copying, reducing, or waiting (wait, flush: only if it took any;
// barrier).
struct Activity {
  int rank = 0;
  std::size_t step = 0;
  StepKind kind = StepKind::copy;
  double begin_us = 0;
  double end_us = 0;
};

struct Flight {
  int from = 0;
  int to = 0;
  std::size_t send_step = 0;
  std::size_t receive_step = 0;
  double begin_us = 0;  // the first byte leaves
  double left_us = 0;   // the last one has left
  double landed_us = 0;
};

struct Simulation {
  std::vector<double> end_us;  // by rank
  // Only if they were asked for; activities in order of time within each rank.
  std::vector<Activity> activities;
  std::vector<Flight> flights;

  double end() const;
};

class Simulator {
 public:
  // The plans of all ranks have at most so many moves (steps but for neighbouring copies and
  // reductions, which count as one): 100 bytes each.
  static constexpr std::size_t kMovesMax = 4'000'000;

  // `trace`: activities and flights are wanted. `shape` says who is on which host.
  Simulator(const Shape& shape, const ElementSize& size, const Prices& prices, bool trace);

  // The plans of rank 0, 1, …
  void add(const Plan& plan);
  bool too_large() const { return moves_.size() > kMovesMax; }

  // Once, after all plans. Throws Error(invalid_argument) naming a rank that never ends, or whose
  // messages do not meet.
  Simulation run();

 private:
  struct Move {
    StepKind kind;
    std::int32_t peer;
    std::size_t step;
    double us;              // copy, reduce: what it takes; send: what its bytes take
    std::int64_t messages;  // wait, flush: of which number; send: its receive, by receives_
  };
  struct Receive {
    std::size_t step;
    double landed_us;  // negative: not yet
  };
  struct Rank {
    std::size_t next = 0;  // of moves_
    std::size_t end = 0;
    std::size_t first_receive = 0;
    std::size_t received = 0;   // how many of its receives it has waited for
    double last_landed_us = 0;  // of those
    double now_us = 0;
    double out_free_us = 0;
    double in_free_us = 0;
    double waits_since_us = -1;  // negative: does not wait
    std::vector<double> left_us;
  };
  struct Event {
    double at_us;
    std::size_t number;  // in order of making: the same times are told apart
    int rank;
    std::size_t flight;  // kGoOn: the rank goes on; else its first byte arrives
    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : number > other.number;
    }
  };
  struct InFlight {
    std::size_t receive;
    double us;
    std::size_t trace;
  };
  static constexpr std::size_t kGoOn = static_cast<std::size_t>(-1);

  void match();
  void go_on(int rank);
  bool make_move(int rank, const Move& move);
  void send(int rank, const Move& move);
  bool wait(int rank, const Move& move);
  void arrive(const Event& event);
  void come_to_barrier(int rank);
  void push(double at_us, int rank, std::size_t flight);
  void record(int rank, const Move& move, double begin_us, double end_us);

  const Prices prices_;
  const ElementSize size_;
  const bool trace_;
  std::vector<int> host_of_;
  std::vector<std::vector<int>> waiting_;  // at the barrier, by host
  std::vector<int> host_ranks_;
  std::vector<Move> moves_;
  std::vector<Receive> receives_;
  std::vector<std::int32_t> receive_peers_;
  std::vector<Rank> ranks_;
  std::vector<InFlight> flying_;
  std::vector<Event> events_;  // a heap
  std::size_t events_ever_ = 0;
  Simulation result_;
};

}  // namespace lockstep
