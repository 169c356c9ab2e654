#include "lockstep/plan/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <span>

#include "lockstep/plan/hosts.h"
#include "lockstep/plan/order.h"
#include "lockstep/plan/packed_plan.h"
#include "lockstep/plan/symbols.h"

namespace lockstep {

namespace {

constexpr int kNone = -1;

// A message, and its source, which must stay as it is until the peer has it.
struct Send {
  Location source;
  int peer = 0;
  int next = kNone;     // the sender's next one to the same peer
  int received_at = 0;  // the peer's own clock when it had the message; 0: not yet
  bool flushed = false;
  std::vector<Symbol> values;  // until it is received
  std::vector<int> clock;      // what the sender knew of everybody when it sent
};

// From one rank to another: the messages that no receive has been matched with.
struct Channel {
  int first = kNone;
  int last = kNone;
};

struct Receive {
  int peer = 0;
  int send = kNone;  // the peer's, once matched
  Location destination;
};

// Who touched a shared element last, and between which barriers.
struct Touch {
  int write_rank = -1;
  int write_epoch = -1;
  int read_rank = -1;  // -2: several
  int read_epoch = -1;
};

struct Cells {
  std::vector<Symbol> values;
  std::vector<Touch> touches;  // empty: of memory that is not shared
};

struct RankState {
  Cells spaces[kSpaceCount];
  Cells other_scratch;  // shared scratch of every second operation
  int round = 0;
  std::size_t step = 0;
  std::size_t position = 0;       // of this step in the plan
  std::size_t next_position = 0;  // of the next one, once this one has been read
  int epoch = 0;                  // barriers passed
  std::vector<int> clock;

  std::deque<Receive> receives;  // that have not landed
  std::int64_t landed = 0;       // receives of this round that a wait has covered
  std::int64_t matched = 0;      // those, and those whose message is under way
  std::int64_t awaited = 0;      // what the wait at hand asks for
  int awaited_peer = kNone;      // whose message the wait at hand needs first

  // Sends are numbered over all rounds.
  std::deque<Send> sends;     // without those at the front that matter no more
  int sends_dropped = 0;      // how many that were
  int sends_before = 0;       // of the rounds before this one
  int sends_received = 0;     // all before this one have been received
  int sends_awaited = kNone;  // what the flush at hand, or the end, waits for

  int sends_made() const { return sends_dropped + static_cast<int>(sends.size()); }
  Send& send(int number) { return sends[static_cast<std::size_t>(number - sends_dropped)]; }
};

bool overlaps(const Location& a, const Location& b) {
  return a.rank == b.rank && a.space == b.space && a.range.count > 0 && b.range.count > 0 &&
         a.range.begin < b.range.end() && b.range.begin < a.range.end();
}

class Checker {
 public:
  // `eager`: a send leaves at once; else when its peer takes it. Both happen, so both are proved.
  Checker(const std::vector<PackedPlan>& plans, const std::vector<Shape>& shapes, Order order,
          bool eager)
      : plans_(plans),
        shapes_(shapes),
        eager_(eager),
        hosts_(shapes[0]),
        full_(static_cast<int>(shapes.size()) <= kFullProofRanksMax),
        rounds_(full_ ? 3 : 1),
        symbols_(shapes, order),
        needs_(plans[0].needs()),
        ranks_(shapes.size()),
        arrived_(static_cast<std::size_t>(hosts_.count()), 0) {
    for (int r = 0; r < size(); ++r) {
      const PackedPlan& plan = plans[r];
      if (plan.needs() != needs_) blame(r, "its plan needs something else than rank 0's");
      RankState& rank = ranks_[r];
      resize(rank, Space::data, data_count(shapes[r]), needs_.shared_data);
      resize(rank, Space::input, input_count(shapes[r]), needs_.shared_input);
      resize(rank, Space::scratch, plan.scratch_count(), needs_.shared_scratch);
      resize(rank, Space::partial, plan.partial_count(), false);
      if (needs_.shared_scratch && rounds_ > 1) {
        rank.other_scratch = rank.spaces[static_cast<int>(Space::scratch)];
      }
      rank.clock.assign(full_ ? shapes.size() : 1, 0);
    }
  }

  std::optional<std::string> run() {
    for (int r = 0; r < size() && !problem_; ++r) {
      start_round(r);
      wake(r);
    }
    while (!movable_.empty() && !problem_) {
      const int r = movable_.front();
      movable_.pop_front();
      while (!problem_ && advance(r)) {
      }
    }
    if (!problem_) check_ends();
    return problem_;
  }

  bool sent_any() const { return !channels_.empty(); }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  Operation operation() const { return shapes_[0].operation; }
  static void resize(RankState& rank, Space space, std::int64_t count, bool shared) {
    Cells& cells = rank.spaces[static_cast<int>(space)];
    cells.values.assign(static_cast<std::size_t>(count), kUndefined);
    if (shared) cells.touches.assign(static_cast<std::size_t>(count), {});
  }
  // To be called once for each time that advance() has returned false.
  void wake(int r) { movable_.push_back(r); }

  template <class... Args>
  void blame(int r, fmt::format_string<Args...> format, Args&&... args) {
    if (problem_) return;
    const RankState& rank = ranks_[r];
    problem_ = fmt::format("rank {}, operation {}, step {}: {}", r, rank.round, rank.step,
                           fmt::format(format, std::forward<Args>(args)...));
  }

  // The user writes new contents before each operation.
  void start_round(int r) {
    RankState& rank = ranks_[r];
    rank.step = rank.position = 0;
    rank.landed = rank.matched = 0;
    rank.sends_before = rank.sends_made();
    for (const Space space : {Space::data, Space::input}) {
      const bool filled = space == Space::input || symbols_.contributes_data();
      const auto count =
          static_cast<std::int64_t>(rank.spaces[static_cast<int>(space)].values.size());
      std::vector<Symbol> values;
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(filled ? symbols_.contribution(rank.round, r, i) : kUndefined);
      }
      write(r, {r, space, 0, {0, count}}, values);
    }
    tick(r);
  }

  void end_round(int r) {
    RankState& rank = ranks_[r];
    if (!rank.receives.empty()) blame(r, "{} receives were never waited for", rank.receives.size());
    const auto& data = rank.spaces[static_cast<int>(Space::data)].values;
    const std::vector<Symbol> expected = symbols_.expected(rank.round, r);
    for (std::size_t i = 0; i < data.size() && !problem_; ++i) {
      if (data[i] != expected[i]) blame(r, "element {} of the result is not what it should be", i);
    }
    if (operation() == Operation::barrier && full_) {
      for (int peer = 0; peer < size(); ++peer) {
        if (rank.clock[peer] < clock_at_start(peer, rank.round)) {
          blame(r, "the barrier ended before rank {} began it", peer);
        }
      }
    }
    ++rank.round;
    if (rank.round < rounds_) start_round(r);
  }
  // Whether all sends before number `end` have left. The engine ends a plan when all have.
  bool leave(int r, int end) {
    RankState& rank = ranks_[r];
    if (!eager_ && rank.sends_received < end) {
      rank.sends_awaited = end;
      return false;
    }
    for (int i = rank.sends_dropped; i < end; ++i) rank.send(i).flushed = true;
    drop_sends(rank);
    return true;
  }
  // Forgets the sends that can do no harm any more.
  void drop_sends(RankState& rank) {
    while (!rank.sends.empty() && rank.sends.front().received_at > 0 &&
           (rank.sends.front().flushed || !full_)) {
      rank.sends.pop_front();
      ++rank.sends_dropped;
    }
  }
  // As far as somebody with this clock knows.
  static bool has_left(const Send& send, const std::vector<int>& clock) {
    return send.flushed || (send.received_at > 0 && clock[send.peer] >= send.received_at);
  }
  // A rank's own clock ticks once at each start and once per step.
  int clock_at_start(int r, int round) const {
    return 1 + round * (1 + static_cast<int>(plans_[r].step_count()));
  }
  int& clock_of(int r) { return ranks_[r].clock[full_ ? r : 0]; }
  void tick(int r) { ++clock_of(r); }

  bool inside(int r, const Location& at) {
    const bool known = at.rank >= 0 && at.rank < size();
    const auto bound =
        known ? static_cast<std::int64_t>(cells_of(r, at).values.size()) : std::int64_t{0};
    if (known && at.range.begin >= 0 && at.range.count >= 0 && at.range.end() <= bound) return true;
    blame(r, "elements {}..{} of rank {} lie outside its buffer of {}", at.range.begin,
          at.range.end(), at.rank, bound);
    return false;
  }

  bool may_touch(int r, const Location& at, bool writes) {
    if (at.rank == r) return true;
    const bool shared = hosts_.of(at.rank) == hosts_.of(r) &&
                        ((at.space == Space::data && needs_.shared_data) ||
                         (at.space == Space::input && needs_.shared_input && !writes) ||
                         (at.space == Space::scratch && needs_.shared_scratch));
    if (!shared) blame(r, "touches memory of rank {}, which is not shared", at.rank);
    return shared;
  }

  // What `at` means to rank r, which may be in another operation than the rank it looks at.
  Cells& cells_of(int r, const Location& at) {
    RankState& owner = ranks_[at.rank];
    const bool other =
        at.space == Space::scratch && needs_.shared_scratch && ranks_[r].round % 2 == 1;
    return other ? owner.other_scratch : owner.spaces[static_cast<int>(at.space)];
  }

  // What stands there, until something is written.
  std::span<const Symbol> read(int r, const Location& at) {
    if (!inside(r, at) || !may_touch(r, at, false)) return {};
    if (full_) {
      for (const Receive& receive : ranks_[r].receives) {
        if (overlaps(receive.destination, at)) blame(r, "reads what is still being received");
      }
    }
    Cells& cells = cells_of(r, at);
    const int epoch = ranks_[r].epoch;
    for (std::int64_t i = at.range.begin; i < at.range.end() && !cells.touches.empty(); ++i) {
      Touch& touch = cells.touches[i];
      if (touch.write_epoch == epoch && touch.write_rank != r) {
        blame(r, "reads element {} of rank {} while rank {} writes it", i, at.rank,
              touch.write_rank);
      }
      const bool first = touch.read_epoch != epoch || touch.read_rank == r;
      touch.read_rank = first ? r : -2;
      touch.read_epoch = epoch;
    }
    return std::span(cells.values).subspan(at.range.begin, at.range.count);
  }

  void write(int r, const Location& at, std::span<const Symbol> values) {
    if (!inside(r, at) || !may_touch(r, at, true)) return;
    RankState& rank = ranks_[r];
    if (full_) {
      for (const Receive& receive : rank.receives) {
        if (overlaps(receive.destination, at)) blame(r, "writes where a message will land");
      }
      for (const Send& send : rank.sends) {
        if (overlaps(send.source, at) && !has_left(send, rank.clock)) {
          blame(r, "overwrites what is still being sent");
        }
      }
    }
    store(r, at, values);
  }

  void store(int r, const Location& at, std::span<const Symbol> values) {
    Cells& cells = cells_of(r, at);
    const int epoch = ranks_[r].epoch;
    for (std::int64_t i = at.range.begin; i < at.range.end() && !cells.touches.empty(); ++i) {
      Touch& touch = cells.touches[i];
      const bool written = touch.write_epoch == epoch && touch.write_rank != r;
      const bool read = touch.read_epoch == epoch && touch.read_rank != r;
      if (written || read) {
        blame(r, "writes element {} of rank {} while another rank {} it", i, at.rank,
              written ? "writes" : "reads");
      }
      touch.write_rank = r;
      touch.write_epoch = epoch;
    }
    std::copy_n(values.begin(), at.range.count, cells.values.begin() + at.range.begin);
  }

  // One step of rank r; false when it cannot move.
  bool advance(int r) {
    RankState& rank = ranks_[r];
    if (rank.round == rounds_) return false;
    if (rank.step == plans_[r].step_count()) {
      if (!leave(r, rank.sends_made())) return false;
      end_round(r);
      return true;
    }
    rank.next_position = plans_[r].read(rank.position, step_);
    switch (step_.kind) {
      case StepKind::copy:
        copy(r, step_.destinations()[0], step_.sources()[0]);
        break;
      case StepKind::reduce:
        reduce(r, step_.destinations(), step_.sources());
        break;
      case StepKind::barrier:
        return pass_barrier(r);
      case StepKind::send:
        send(r, step_.peer, step_.sources()[0]);
        break;
      case StepKind::receive:
        receive(r, step_.peer, step_.destinations()[0]);
        break;
      case StepKind::wait:
        if (!wait(r, step_.messages)) return false;
        break;
      case StepKind::flush:
        if (!flush(r, step_.messages)) return false;
        break;
    }
    go_on(r);
    return true;
  }
  void go_on(int r) {
    ++ranks_[r].step;
    ranks_[r].position = ranks_[r].next_position;
    tick(r);
  }

  static bool is_partial(const Location& at) { return at.space == Space::partial; }

  void copy(int r, const Location& destination, const Location& source) {
    if (is_partial(destination) != is_partial(source)) {
      return blame(r, "takes an unfinished sum for a value");
    }
    if (destination.range.count != source.range.count) return blame(r, "copies another length");
    const auto values = read(r, source);
    values_.assign(values.begin(), values.end());
    if (!problem_) write(r, destination, values_);
  }

  void reduce(int r, std::span<const Location> destinations, std::span<const Location> sources) {
    const auto count = static_cast<std::size_t>(sources[0].range.count);
    values_.clear();  // the sources, one after the other
    Merger merger([&](std::size_t left, std::size_t right) {
      for (std::size_t i = 0; i < count; ++i) {
        Symbol& sum = values_[left * count + i];
        sum = symbols_.merged(sum, values_[right * count + i]);
      }
    });
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto values = read(r, sources[i]);
      if (problem_) return;
      if (values.size() != count) return blame(r, "reduces sources of different lengths");
      values_.insert(values_.end(), values.begin(), values.end());
      merger.push(i, sources[i].level);
    }
    const auto sums = std::span(values_).subspan(merger.finish() * count, count);
    std::vector<Symbol> results;
    for (const Symbol sum : sums) results.push_back(Symbols::finished(sum));
    for (const Location& destination : destinations) {
      if (destination.range.count != static_cast<std::int64_t>(count)) {
        return blame(r, "reduces into a destination of another length");
      }
      write(r, destination, is_partial(destination) ? sums : results);
    }
  }

  bool is_peer(int r, int peer) {
    const bool known = peer >= 0 && peer < size();
    if (!known) blame(r, "names rank {}, which does not exist", peer);
    return known;
  }
  Channel& channel(int from, int to) {
    const auto ranks = static_cast<std::size_t>(size());
    if (channels_.empty()) channels_.resize(ranks * ranks);
    return channels_[static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)];
  }

  void send(int r, int peer, const Location& source) {
    if (!is_peer(r, peer)) return;
    RankState& rank = ranks_[r];
    const auto values = read(r, source);
    const int number = rank.sends_made();
    Send& send = rank.sends.emplace_back();
    send.source = source;
    send.peer = peer;
    send.values.assign(values.begin(), values.end());
    if (full_) send.clock = rank.clock;
    Channel& to_peer = channel(r, peer);
    (to_peer.first == kNone ? to_peer.first : rank.send(to_peer.last).next) = number;
    to_peer.last = number;
    if (ranks_[peer].awaited_peer == r && match(peer)) wake(peer);
  }

  void receive(int r, int peer, const Location& destination) {
    if (!is_peer(r, peer) || !inside(r, destination) || !may_touch(r, destination, true)) return;
    ranks_[r].receives.push_back({peer, kNone, destination});
  }

  // Whether all that rank r awaits is under way: the i-th receive from a peer takes its i-th send.
  bool match(int r) {
    RankState& rank = ranks_[r];
    rank.awaited_peer = kNone;
    while (rank.matched < rank.awaited) {
      Receive& receive = rank.receives[static_cast<std::size_t>(rank.matched - rank.landed)];
      Channel& from_peer = channel(receive.peer, r);
      if (from_peer.first == kNone) {
        rank.awaited_peer = receive.peer;
        return false;
      }
      receive.send = from_peer.first;
      from_peer.first = ranks_[receive.peer].send(receive.send).next;
      ++rank.matched;
    }
    return true;
  }

  // All messages must be under way before any lands, or a wait would be half done.
  bool wait(int r, std::int64_t receives) {
    RankState& rank = ranks_[r];
    if (receives - rank.landed > static_cast<std::int64_t>(rank.receives.size())) {
      blame(r, "waits for more receives than it asked for");
      return false;
    }
    rank.awaited = receives;
    if (!match(r)) return false;
    for (; rank.landed < receives; ++rank.landed) {
      const Receive receive = rank.receives.front();
      rank.receives.pop_front();
      land(r, receive);
      if (problem_) return false;
    }
    return true;
  }

  bool flush(int r, std::int64_t sends) {
    const std::int64_t end = ranks_[r].sends_before + sends;
    if (end <= ranks_[r].sends_made()) return leave(r, static_cast<int>(end));
    blame(r, "flushes more sends than it made");
    return false;
  }

  void land(int r, const Receive& receive) {
    RankState& rank = ranks_[r];
    Send& message = ranks_[receive.peer].send(receive.send);
    if (is_partial(message.source) != is_partial(receive.destination)) {
      return blame(r, "takes an unfinished sum for a value");
    }
    if (message.source.range.count != receive.destination.range.count) {
      return blame(r, "expects {} elements from rank {}, which sends {}",
                   receive.destination.range.count, receive.peer, message.source.range.count);
    }
    if (full_) {
      for (const Send& send : rank.sends) {
        if (overlaps(send.source, receive.destination) && !has_left(send, message.clock)) {
          blame(r, "a message lands on what is still being sent");
        }
      }
      for (int i = 0; i < size(); ++i) rank.clock[i] = std::max(rank.clock[i], message.clock[i]);
    }
    store(r, receive.destination, message.values);
    message.received_at = clock_of(r) + 1;
    message.values = {};
    message.clock = {};
    received(receive.peer);
  }

  // One more of the sends of rank r has been received.
  void received(int r) {
    RankState& rank = ranks_[r];
    while (rank.sends_received < rank.sends_made() &&
           rank.send(rank.sends_received).received_at > 0) {
      ++rank.sends_received;
    }
    drop_sends(rank);
    if (rank.sends_awaited == kNone || rank.sends_received < rank.sends_awaited) return;
    rank.sends_awaited = kNone;
    wake(r);
  }

  // The last rank of a host to come lets all go on.
  bool pass_barrier(int r) {
    const int host = hosts_.of(r);
    const std::vector<int>& members = hosts_.members(host);
    if (++arrived_[host] < static_cast<int>(members.size())) return false;
    arrived_[host] = 0;
    std::vector<int> known(ranks_[r].clock.size(), 0);
    for (const int member : members) {
      for (std::size_t i = 0; i < known.size() && full_; ++i) {
        known[i] = std::max(known[i], ranks_[member].clock[i]);
      }
    }
    for (const int member : members) {
      if (full_) ranks_[member].clock = known;
      ++ranks_[member].epoch;
      go_on(member);
      if (member != r) wake(member);
    }
    return true;
  }

  void check_ends() {
    for (int r = 0; r < size(); ++r) {
      const RankState& rank = ranks_[r];
      if (rank.round == rounds_) continue;
      if (rank.step == plans_[r].step_count()) {
        blame(r, "its peers do not ask for all that it sends");
        continue;
      }
      plans_[r].read(rank.position, step_);
      blame(r, "waits for ever at '{}'", to_string(step_.kind));
    }
    for (int r = 0; r < size(); ++r) {
      for (const Send& send : ranks_[r].sends) {
        if (send.received_at == 0) blame(r, "sent rank {} more than it asks for", send.peer);
      }
    }
  }

  const std::vector<PackedPlan>& plans_;
  const std::vector<Shape>& shapes_;
  const bool eager_;
  const Hosts hosts_;
  const bool full_;
  const int rounds_;
  Symbols symbols_;
  const Needs needs_;  // of every plan
  std::vector<RankState> ranks_;
  std::vector<int> arrived_;       // by host: ranks that wait at the barrier
  std::deque<int> movable_;        // ranks that may have something to do
  std::vector<Channel> channels_;  // ranks × ranks, once there is a message
  UnpackedStep step_;              // the one at hand
  std::vector<Symbol> values_;     // that it handles
  std::optional<std::string> problem_;
};

// Sends that wait for their peers make a difference only where something is sent.
std::optional<std::string> check(const std::vector<PackedPlan>& plans,
                                 const std::vector<Shape>& shapes, Order order) {
  for (const bool eager : {true, false}) {
    Checker checker(plans, shapes, order, eager);
    if (auto problem = checker.run()) return problem;
    if (!checker.sent_any()) break;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Shape> shapes_of(const Shape& shape) {
  std::vector<Shape> shapes(static_cast<std::size_t>(shape.ranks), shape);
  for (int rank = 0; rank < shape.ranks; ++rank) shapes[static_cast<std::size_t>(rank)].rank = rank;
  return shapes;
}

std::optional<std::string> check_plans(const std::vector<Plan>& plans,
                                       const std::vector<Shape>& shapes, Order order) {
  return check({plans.begin(), plans.end()}, shapes, order);
}

std::optional<std::string> check_plan(const Algorithm& algorithm, const Shape& shape) {
  return check_plan(algorithm, shapes_of(shape));
}

std::optional<std::string> check_plan(const Algorithm& algorithm,
                                      const std::vector<Shape>& shapes) {
  std::vector<PackedPlan> plans;
  plans.reserve(shapes.size());
  for (const Shape& of_rank : shapes) plans.emplace_back(algorithm.make(of_rank));
  return check(plans, shapes, algorithm.order);
}

}  // namespace lockstep
