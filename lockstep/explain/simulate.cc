#include "lockstep/explain/simulate.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/plan/hosts.h"

namespace lockstep {

double Simulation::end() const {
  return end_us.empty() ? 0 : *std::ranges::max_element(end_us);
}

Simulator::Simulator(const Shape& shape, const ElementSize& size, const Prices& prices, bool trace)
    : prices_(prices), size_(size), trace_(trace) {
  const Hosts hosts(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) host_of_.push_back(hosts.of(rank));
  for (int host = 0; host < hosts.count(); ++host) {
    host_ranks_.push_back(static_cast<int>(hosts.members(host).size()));
  }
  waiting_.resize(host_ranks_.size());
}

void Simulator::add(const Plan& plan) {
  Rank& rank = ranks_.emplace_back();
  rank.next = moves_.size();
  rank.first_receive = receives_.size();
  for (std::size_t i = 0; i < plan.steps.size() && !too_large(); ++i) {
    const Step& step = plan.steps[i];
    Move move{step.kind, step.peer, i, work_us(plan, step, size_, prices_), step.messages};
    if (step.kind == StepKind::receive) {
      receives_.push_back({i, -1});
      receive_peers_.push_back(step.peer);
      continue;
    }
    if (step.kind == StepKind::send) {
      move.us = static_cast<double>(size_.of(plan.sources(step)[0])) * prices_.byte_us;
    }
    const bool work = step.kind == StepKind::copy || step.kind == StepKind::reduce;
    if (work && !trace_ && moves_.size() > rank.next &&
        (moves_.back().kind == StepKind::copy || moves_.back().kind == StepKind::reduce)) {
      moves_.back().us += move.us;
      continue;
    }
    moves_.push_back(move);
  }
  rank.end = moves_.size();
}

// Finds the receive of every send: the i-th from a rank to another is that one's i-th from it.
void Simulator::match() {
  struct End {
    std::int32_t from;
    std::int32_t to;
    std::size_t index;
  };
  const auto earlier = [](const End& a, const End& b) {
    return std::tie(a.from, a.to, a.index) < std::tie(b.from, b.to, b.index);
  };
  std::vector<End> sends;
  std::vector<End> receives;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const auto rank = static_cast<std::int32_t>(r);
    for (std::size_t i = ranks_[r].next; i < ranks_[r].end; ++i) {
      if (moves_[i].kind == StepKind::send) sends.push_back({rank, moves_[i].peer, i});
    }
    const bool last = r + 1 == ranks_.size();
    const std::size_t end = last ? receives_.size() : ranks_[r + 1].first_receive;
    for (std::size_t i = ranks_[r].first_receive; i < end; ++i) {
      receives.push_back({receive_peers_[i], rank, i});
    }
  }
  std::ranges::sort(sends, earlier);
  std::ranges::sort(receives, earlier);
  const bool same = std::ranges::equal(
      sends, receives, [](const End& a, const End& b) { return a.from == b.from && a.to == b.to; });
  if (!same) fail(Code::invalid_argument, "the sends and receives of these plans do not meet");
  for (std::size_t i = 0; i < sends.size(); ++i) {
    moves_[sends[i].index].messages = static_cast<std::int64_t>(receives[i].index);
  }
}

Simulation Simulator::run() {
  LOCKSTEP_CHECK(!too_large() && ranks_.size() == host_of_.size());
  match();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    push(0, static_cast<int>(rank), kGoOn);
  }
  while (!events_.empty()) {
    std::ranges::pop_heap(events_, std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    if (event.flight == kGoOn) {
      go_on(event.rank);
    } else {
      arrive(event);
    }
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].next < ranks_[r].end) {
      const Move& move = moves_[ranks_[r].next];
      fail(Code::invalid_argument, "rank {} waits for ever at step {} ({})", r, move.step,
           to_string(move.kind));
    }
    result_.end_us.push_back(std::max(ranks_[r].now_us, ranks_[r].out_free_us));
  }
  return std::move(result_);
}

void Simulator::push(double at_us, int rank, std::size_t flight) {
  events_.push_back({at_us, events_ever_++, rank, flight});
  std::ranges::push_heap(events_, std::greater<>());
}

void Simulator::record(int rank, const Move& move, double begin_us, double end_us) {
  const bool work = move.kind == StepKind::copy || move.kind == StepKind::reduce;
  if (trace_ && (work || end_us > begin_us || move.kind == StepKind::barrier)) {
    result_.activities.push_back({rank, move.step, move.kind, begin_us, end_us});
  }
}

void Simulator::go_on(int rank) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  while (r.next < r.end && make_move(rank, moves_[r.next])) ++r.next;
}

// False: the rank is blocked there; it goes on by an event.
bool Simulator::make_move(int rank, const Move& move) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  switch (move.kind) {
    case StepKind::copy:
    case StepKind::reduce:
      record(rank, move, r.now_us, r.now_us + move.us);
      r.now_us += move.us;
      return true;
    case StepKind::send:
      send(rank, move);
      return true;
    case StepKind::flush: {
      if (move.messages == 0) return true;
      const double left = r.left_us[static_cast<std::size_t>(move.messages) - 1];
      record(rank, move, r.now_us, left);
      r.now_us = std::max(r.now_us, left);
      return true;
    }
    case StepKind::wait:
      return wait(rank, move);
    case StepKind::barrier:
      come_to_barrier(rank);
      return false;
    case StepKind::receive:
      break;
  }
  return true;
}

void Simulator::send(int rank, const Move& move) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  r.now_us += prices_.message_us;
  const double begin = std::max(r.now_us, r.out_free_us);
  r.out_free_us = begin + move.us;
  r.left_us.push_back(r.out_free_us);
  const auto receive = static_cast<std::size_t>(move.messages);
  flying_.push_back({receive, move.us, result_.flights.size()});
  if (trace_) {
    result_.flights.push_back(
        {rank, move.peer, move.step, receives_[receive].step, begin, r.out_free_us, 0});
  }
  push(begin + prices_.latency_us, move.peer, flying_.size() - 1);
}

bool Simulator::wait(int rank, const Move& move) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  if (r.waits_since_us < 0) r.waits_since_us = r.now_us;
  for (; r.received < static_cast<std::size_t>(move.messages); ++r.received) {
    const double landed = receives_[r.first_receive + r.received].landed_us;
    if (landed < 0) return false;
    r.last_landed_us = std::max(r.last_landed_us, landed);
  }
  const double end = std::max(r.waits_since_us, r.last_landed_us);
  record(rank, move, r.waits_since_us, end);
  r.now_us = end;
  r.waits_since_us = -1;
  return true;
}

void Simulator::arrive(const Event& event) {
  const InFlight& flight = flying_[event.flight];
  Rank& r = ranks_[static_cast<std::size_t>(event.rank)];
  r.in_free_us = std::max(r.in_free_us, event.at_us) + flight.us;
  receives_[flight.receive].landed_us = r.in_free_us;
  if (trace_) result_.flights[flight.trace].landed_us = r.in_free_us;
  if (r.waits_since_us >= 0) go_on(event.rank);
}

void Simulator::come_to_barrier(int rank) {
  const auto host = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
  std::vector<int>& waiting = waiting_[host];
  waiting.push_back(rank);
  if (static_cast<int>(waiting.size()) < host_ranks_[host]) return;
  double last = 0;
  for (const int r : waiting) last = std::max(last, ranks_[static_cast<std::size_t>(r)].now_us);
  const double end = last + (waiting.size() > 1 ? prices_.barrier_us : 0);
  for (const int member : waiting) {
    Rank& r = ranks_[static_cast<std::size_t>(member)];
    record(member, moves_[r.next], r.now_us, end);
    r.now_us = end;
    ++r.next;
    push(end, member, kGoOn);
  }
  waiting.clear();
}

}  // namespace lockstep
