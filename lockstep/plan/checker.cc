#include "lockstep/plan/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace lockstep {

namespace {

constexpr int kRounds = 2;
constexpr std::int64_t kUndefined = -1;

// A message between its send step and its receive.
struct Message {
  std::vector<std::int64_t> values;
  std::vector<int> clock;  // what the sender knew of everybody when it sent
  std::size_t pending_send = 0;
};

// The source of a send, which must stay as it is until the peer has it.
struct PendingSend {
  Location source;
  int peer = 0;
  int received_at = 0;  // the peer's own clock when it had the message; 0: not yet
};

struct PendingReceive {
  int peer = 0;
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
  std::vector<std::int64_t> values;
  std::vector<Touch> touches;
};

struct RankState {
  Cells spaces[3];
  int round = 0;
  std::size_t step = 0;
  int epoch = 0;  // barriers passed
  bool at_barrier = false;
  std::int64_t landed = 0;  // receives of this round that a wait has covered
  std::deque<PendingReceive> receives;
  std::vector<PendingSend> sends;
  std::vector<int> clock;
};

bool overlaps(const Location& a, const Location& b) {
  return a.rank == b.rank && a.space == b.space && a.range.count > 0 && b.range.count > 0 &&
         a.range.begin < b.range.end() && b.range.begin < a.range.end();
}

class Checker {
 public:
  Checker(const std::vector<Plan>& plans, const Shape& shape) : plans_(plans), shape_(shape) {
    ranks_.resize(plans.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      resize(ranks_[r].spaces[static_cast<int>(Space::data)], data_count());
      resize(ranks_[r].spaces[static_cast<int>(Space::input)], input_count());
      resize(ranks_[r].spaces[static_cast<int>(Space::scratch)], plans[r].scratch_count);
      ranks_[r].clock.assign(plans.size(), 0);
    }
    messages_.resize(plans.size() * plans.size());
  }

  std::optional<std::string> run() {
    for (int r = 0; r < size() && !problem_; ++r) start_round(r);
    bool moved = true;
    while (moved && !problem_) {
      moved = false;
      for (int r = 0; r < size() && !problem_; ++r) {
        while (!problem_ && advance(r)) moved = true;
      }
      if (pass_barrier()) moved = true;
    }
    if (!problem_) check_ends();
    return problem_;
  }

 private:
  int size() const { return static_cast<int>(plans_.size()); }
  std::int64_t data_count() const {
    if (shape_.operation == Operation::barrier) return 0;
    return shape_.operation == Operation::all_gather ? shape_.count * size() : shape_.count;
  }
  std::int64_t input_count() const {
    return shape_.operation == Operation::all_gather ? shape_.count : 0;
  }
  static void resize(Cells& cells, std::int64_t count) {
    cells.values.assign(static_cast<std::size_t>(count), kUndefined);
    cells.touches.assign(static_cast<std::size_t>(count), {});
  }

  template <class... Args>
  void blame(int r, fmt::format_string<Args...> format, Args&&... args) {
    if (problem_) return;
    const RankState& rank = ranks_[r];
    problem_ = fmt::format("rank {}, operation {}, step {}: {}", r, rank.round, rank.step,
                           fmt::format(format, std::forward<Args>(args)...));
  }

  // Symbols. A leaf is an element of a rank's input in a round; pairs and finished values are
  // interned.
  std::int64_t leaf(int round, int rank, std::int64_t element) const {
    return (round * size() + rank) * (shape_.count + 1) + element;
  }
  std::int64_t intern(std::int64_t a, std::int64_t b) {
    const auto key = static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
    const auto next = std::int64_t{1} << 30 | static_cast<std::int64_t>(symbols_.size());
    return symbols_.try_emplace(key, next).first->second;
  }
  std::int64_t reduced(const std::vector<std::int64_t>& values) {
    std::int64_t result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) result = intern(result, values[i]);
    return intern(result, 0x7fffffff);
  }
  std::int64_t expected(int round, std::int64_t element) {
    switch (shape_.operation) {
      case Operation::all_reduce: {
        std::vector<std::int64_t> column;
        for (int r = 0; r < size(); ++r) column.push_back(leaf(round, r, element));
        return reduced(column);
      }
      case Operation::broadcast:
        return leaf(round, shape_.root, element);
      case Operation::all_gather:
        return leaf(round, static_cast<int>(element / shape_.count), element % shape_.count);
      case Operation::barrier:
        break;
    }
    return kUndefined;
  }

  // The user writes new contents before each operation.
  void start_round(int r) {
    RankState& rank = ranks_[r];
    rank.step = 0;
    rank.landed = 0;
    const bool gather = shape_.operation == Operation::all_gather;
    for (std::int64_t i = 0; i < data_count(); ++i) {
      write(r, {r, Space::data, {i, 1}}, {gather ? kUndefined : leaf(rank.round, r, i)});
    }
    for (std::int64_t i = 0; i < input_count(); ++i) {
      write(r, {r, Space::input, {i, 1}}, {leaf(rank.round, r, i)});
    }
    ++rank.clock[r];
  }

  void end_round(int r) {
    RankState& rank = ranks_[r];
    if (!rank.receives.empty()) blame(r, "{} receives were never waited for", rank.receives.size());
    for (std::int64_t i = 0; i < data_count() && !problem_; ++i) {
      if (rank.spaces[0].values[i] != expected(rank.round, i)) {
        blame(r, "element {} of the result is not what it should be", i);
      }
    }
    if (shape_.operation == Operation::barrier) {
      for (int peer = 0; peer < size(); ++peer) {
        if (rank.clock[peer] < clock_at_start(peer, rank.round)) {
          blame(r, "the barrier ended before rank {} began it", peer);
        }
      }
    }
    rank.sends.clear();  // the engine ends a plan when its sends have left
    ++rank.round;
    if (rank.round < kRounds) start_round(r);
  }
  // A rank's own clock ticks once at each start and once per step.
  int clock_at_start(int r, int round) const {
    return 1 + round * (1 + static_cast<int>(plans_[r].steps.size()));
  }

  bool inside(int r, const Location& at) {
    const bool known = at.rank >= 0 && at.rank < size();
    const auto bound = known ? static_cast<std::int64_t>(
                                   ranks_[at.rank].spaces[static_cast<int>(at.space)].values.size())
                             : 0;
    if (known && at.range.begin >= 0 && at.range.count >= 0 && at.range.end() <= bound) return true;
    blame(r, "elements {}..{} of rank {} lie outside its buffer of {}", at.range.begin,
          at.range.end(), at.rank, bound);
    return false;
  }

  bool may_touch(int r, const Location& at) {
    if (at.rank == r) return true;
    const Needs needs = plans_[r].needs;
    const bool shared = (at.space == Space::data && needs == Needs::shared_data) ||
                        (at.space == Space::scratch && needs != Needs::messages);
    if (!shared) blame(r, "touches memory of rank {}, which is not shared", at.rank);
    return shared;
  }

  std::vector<std::int64_t> read(int r, const Location& at) {
    if (!inside(r, at) || !may_touch(r, at)) return {};
    for (const PendingReceive& receive : ranks_[r].receives) {
      if (overlaps(receive.destination, at)) blame(r, "reads what is still being received");
    }
    Cells& cells = ranks_[at.rank].spaces[static_cast<int>(at.space)];
    const int epoch = ranks_[r].epoch;
    for (std::int64_t i = at.range.begin; i < at.range.end(); ++i) {
      Touch& touch = cells.touches[i];
      if (touch.write_epoch == epoch && touch.write_rank != r) {
        blame(r, "reads element {} of rank {} while rank {} writes it", i, at.rank,
              touch.write_rank);
      }
      const bool first = touch.read_epoch != epoch || touch.read_rank == r;
      touch.read_rank = first ? r : -2;
      touch.read_epoch = epoch;
    }
    return {cells.values.begin() + at.range.begin, cells.values.begin() + at.range.end()};
  }

  void write(int r, const Location& at, const std::vector<std::int64_t>& values) {
    if (!inside(r, at) || !may_touch(r, at)) return;
    RankState& rank = ranks_[r];
    for (const PendingReceive& receive : rank.receives) {
      if (overlaps(receive.destination, at)) blame(r, "writes where a message will land");
    }
    for (const PendingSend& send : rank.sends) {
      const bool received = send.received_at > 0 && rank.clock[send.peer] >= send.received_at;
      if (overlaps(send.source, at) && !received) blame(r, "overwrites what is still being sent");
    }
    store(r, at, values);
  }

  void store(int r, const Location& at, const std::vector<std::int64_t>& values) {
    Cells& cells = ranks_[at.rank].spaces[static_cast<int>(at.space)];
    const int epoch = ranks_[r].epoch;
    for (std::int64_t i = 0; i < at.range.count; ++i) {
      Touch& touch = cells.touches[at.range.begin + i];
      const bool written = touch.write_epoch == epoch && touch.write_rank != r;
      const bool read = touch.read_epoch == epoch && touch.read_rank != r;
      if (written || read) {
        blame(r, "writes element {} of rank {} while another rank {} it", at.range.begin + i,
              at.rank, written ? "writes" : "reads");
      }
      touch.write_rank = r;
      touch.write_epoch = epoch;
      cells.values[at.range.begin + i] = values[i];
    }
  }

  // One step of rank r; false when it cannot move.
  bool advance(int r) {
    RankState& rank = ranks_[r];
    if (rank.round == kRounds) return false;
    if (rank.step == plans_[r].steps.size()) {
      end_round(r);
      return true;
    }
    const Step& step = plans_[r].steps[rank.step];
    switch (step.kind) {
      case StepKind::copy:
        write(r, step.destinations[0], read(r, step.sources[0]));
        break;
      case StepKind::reduce:
        reduce(r, step);
        break;
      case StepKind::barrier:
        rank.at_barrier = true;
        return false;
      case StepKind::send:
        send(r, step);
        break;
      case StepKind::receive:
        if (inside(r, step.destinations[0]) && may_touch(r, step.destinations[0])) {
          rank.receives.push_back({step.peer, step.destinations[0]});
        }
        break;
      case StepKind::wait:
        if (!wait(r, step.receives)) return false;
        break;
    }
    ++rank.step;
    ++rank.clock[r];
    return true;
  }

  void reduce(int r, const Step& step) {
    std::vector<std::vector<std::int64_t>> sources;
    for (const Location& source : step.sources) sources.push_back(read(r, source));
    if (problem_) return;
    const std::size_t count = sources[0].size();
    std::vector<std::int64_t> results;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::int64_t> column;
      for (const auto& source : sources) {
        if (source.size() != count) return blame(r, "reduces sources of different lengths");
        column.push_back(source[i]);
      }
      results.push_back(reduced(column));
    }
    for (const Location& destination : step.destinations) {
      if (destination.range.count != static_cast<std::int64_t>(count)) {
        return blame(r, "reduces into a destination of another length");
      }
      write(r, destination, results);
    }
  }

  std::deque<Message>& channel(int from, int to) { return messages_[from * size() + to]; }

  void send(int r, const Step& step) {
    Message message;
    message.values = read(r, step.sources[0]);
    message.clock = ranks_[r].clock;
    message.pending_send = ranks_[r].sends.size();
    ranks_[r].sends.push_back({step.sources[0], step.peer, 0});
    channel(r, step.peer).push_back(std::move(message));
  }

  bool wait(int r, std::int64_t receives) {
    RankState& rank = ranks_[r];
    // All of them must be under way before any is taken, or a wait would be half done.
    std::unordered_map<int, std::size_t> needed;
    for (std::int64_t i = 0; i < receives - rank.landed; ++i) {
      if (static_cast<std::size_t>(i) >= rank.receives.size()) {
        blame(r, "waits for more receives than it asked for");
        return false;
      }
      const int peer = rank.receives[i].peer;
      if (channel(peer, r).size() < ++needed[peer]) return false;
    }
    for (; rank.landed < receives; ++rank.landed) {
      const PendingReceive receive = rank.receives.front();
      rank.receives.pop_front();
      land(r, receive);
    }
    return true;
  }

  void land(int r, const PendingReceive& receive) {
    RankState& rank = ranks_[r];
    Message message = std::move(channel(receive.peer, r).front());
    channel(receive.peer, r).pop_front();
    if (static_cast<std::int64_t>(message.values.size()) != receive.destination.range.count) {
      return blame(r, "expects {} elements from rank {}, which sends {}",
                   receive.destination.range.count, receive.peer, message.values.size());
    }
    for (const PendingSend& send : rank.sends) {
      const bool received = send.received_at > 0 && message.clock[send.peer] >= send.received_at;
      if (overlaps(send.source, receive.destination) && !received) {
        blame(r, "a message lands on what is still being sent");
      }
    }
    store(r, receive.destination, message.values);
    auto& sends = ranks_[receive.peer].sends;
    if (message.pending_send < sends.size()) {
      sends[message.pending_send].received_at = rank.clock[r] + 1;
    }
    for (int i = 0; i < size(); ++i) rank.clock[i] = std::max(rank.clock[i], message.clock[i]);
  }

  bool pass_barrier() {
    for (const RankState& rank : ranks_) {
      if (!rank.at_barrier) return false;
    }
    std::vector<int> merged(ranks_.size(), 0);
    for (const RankState& rank : ranks_) {
      for (int i = 0; i < size(); ++i) merged[i] = std::max(merged[i], rank.clock[i]);
    }
    for (int r = 0; r < size(); ++r) {
      ranks_[r].clock = merged;
      ranks_[r].at_barrier = false;
      ++ranks_[r].epoch;
      ++ranks_[r].step;
      ++ranks_[r].clock[r];
    }
    return true;
  }

  void check_ends() {
    for (int r = 0; r < size(); ++r) {
      if (ranks_[r].round == kRounds) continue;
      const Step& step = plans_[r].steps[ranks_[r].step];
      blame(r, "waits for ever at '{}'", to_string(step.kind));
    }
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        if (!channel(from, to).empty()) blame(from, "sent rank {} more than it asks for", to);
      }
    }
  }

  const std::vector<Plan>& plans_;
  const Shape& shape_;
  std::vector<RankState> ranks_;
  std::vector<std::deque<Message>> messages_;
  std::unordered_map<std::uint64_t, std::int64_t> symbols_;
  std::optional<std::string> problem_;
};

}  // namespace

std::optional<std::string> check_plans(const std::vector<Plan>& plans, const Shape& shape) {
  return Checker(plans, shape).run();
}

std::optional<std::string> check_plan(const Algorithm& algorithm, const Shape& shape) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Shape of_rank = shape;
    of_rank.rank = rank;
    plans.push_back(algorithm.make(of_rank));
  }
  return check_plans(plans, shape);
}

}  // namespace lockstep
