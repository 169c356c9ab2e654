#include "lockstep/plan/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "lockstep/plan/hosts.h"
#include "lockstep/plan/order.h"

namespace lockstep {

namespace {

// A symbol stands for a value: equal symbols, equal values, but for a chance of 2^-64.
using Symbol = std::uint64_t;
constexpr Symbol kUndefined = 0;

Symbol mix(Symbol x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
Symbol finished(Symbol sum) {
  return mix(sum ^ 0x5bd1e995f1a15ed);
}

struct Message {
  std::vector<Symbol> values;
  bool partial = false;
  std::vector<int> clock;  // what the sender knew of everybody when it sent
  std::size_t pending_send = 0;
};

// The source of a send, which must stay as it is until the peer has it.
struct PendingSend {
  Location source;
  int peer = 0;
  int received_at = 0;  // the peer's own clock when it had the message; 0: not yet
  bool flushed = false;
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
  std::vector<Symbol> values;
  std::vector<Touch> touches;
};

struct RankState {
  Cells spaces[kSpaceCount];
  Cells other_scratch;  // shared scratch of every second operation
  int round = 0;
  std::size_t step = 0;
  int epoch = 0;  // barriers passed
  bool at_barrier = false;
  std::int64_t landed = 0;  // receives of this round that a wait has covered
  std::deque<PendingReceive> receives;
  std::vector<PendingSend> sends;
  std::size_t sends_before = 0;  // of the rounds before this one
  std::vector<int> clock;
};

bool overlaps(const Location& a, const Location& b) {
  return a.rank == b.rank && a.space == b.space && a.range.count > 0 && b.range.count > 0 &&
         a.range.begin < b.range.end() && b.range.begin < a.range.end();
}

class Checker {
 public:
  // `eager`: a send leaves at once; else when its peer takes it. Both happen, so both are proved.
  Checker(const std::vector<Plan>& plans, const std::vector<Shape>& shapes, Order order, bool eager)
      : plans_(plans),
        shapes_(shapes),
        order_(order),
        eager_(eager),
        hosts_(shapes[0]),
        full_(static_cast<int>(plans.size()) <= kFullProofRanksMax),
        rounds_(full_ ? 3 : 1),
        longest_(longest_part(shapes)) {
    ranks_.resize(plans.size());
    for (int r = 0; r < size(); ++r) {
      RankState& rank = ranks_[r];
      resize(rank.spaces[static_cast<int>(Space::data)], data_count(shapes[r]));
      resize(rank.spaces[static_cast<int>(Space::input)], input_count(shapes[r]));
      resize(rank.spaces[static_cast<int>(Space::scratch)], plans[r].scratch_count);
      resize(rank.other_scratch, plans[r].scratch_count);
      resize(rank.spaces[static_cast<int>(Space::partial)], plans[r].partial_count);
      rank.clock.assign(full_ ? plans.size() : 1, 0);
      const bool all_to_all = operation() == Operation::all_to_all;
      if (r == 0 || all_to_all) outgoing_.emplace_back(size(), shapes[r].count, shapes[r].counts);
      if (all_to_all) incoming_.emplace_back(size(), shapes[r].count, shapes[r].receive_counts);
    }
  }

  std::optional<std::string> run() {
    for (int r = 0; r < size() && !problem_; ++r) start_round(r);
    bool moved = true;
    while (moved && !problem_) {
      moved = false;
      for (int r = 0; r < size() && !problem_; ++r) {
        while (!problem_ && advance(r)) moved = true;
      }
      for (int host = 0; host < hosts_.count() && !problem_; ++host) {
        if (pass_barrier(host)) moved = true;
      }
    }
    if (!problem_) check_ends();
    return problem_;
  }

 private:
  int size() const { return static_cast<int>(plans_.size()); }
  Operation operation() const { return shapes_[0].operation; }
  static std::int64_t longest_part(const std::vector<Shape>& shapes) {
    std::int64_t longest = 0;
    for (const Shape& shape : shapes) {
      longest = std::max({longest, data_count(shape), input_count(shape)});
    }
    return longest + 1;
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

  // The element of a rank's contribution in a round.
  Symbol leaf(int round, int rank, std::int64_t element) const {
    return mix(static_cast<Symbol>((round * size() + rank) * longest_ + element));
  }
  Symbol merged(Symbol left, Symbol right) const {
    return order_ == Order::any ? left + right : mix(mix(left) + 3 * right);
  }
  Symbol sum_of_all(int round, std::int64_t element) const {
    std::vector<Symbol> column;
    for (int r = 0; r < size(); ++r) column.push_back(leaf(round, r, element));
    return sum(column, {});
  }
  // `levels` empty: all are single ranks.
  Symbol sum(std::vector<Symbol>& values, const std::vector<std::uint8_t>& levels) const {
    Merger merger([&](std::size_t a, std::size_t b) { values[a] = merged(values[a], values[b]); });
    for (std::size_t i = 0; i < values.size(); ++i) merger.push(i, levels.empty() ? 0 : levels[i]);
    return values[merger.finish()];
  }

  // What data must hold at the end; kUndefined: it does not matter.
  Symbol expected(int r, int round, std::int64_t element) const {
    const Shape& shape = shapes_[r];
    switch (operation()) {
      case Operation::all_reduce:
        return finished(sum_of_all(round, element));
      case Operation::reduce:
        return r == shape.root ? finished(sum_of_all(round, element)) : leaf(round, r, element);
      case Operation::broadcast:
        return leaf(round, shape.root, element);
      case Operation::reduce_scatter:
        return finished(sum_of_all(round, outgoing_[0][r].begin + element));
      case Operation::scatter:
        return leaf(round, shape.root, outgoing_[0][r].begin + element);
      case Operation::all_gather:
      case Operation::gather: {
        const auto [from, offset] = find_part(outgoing_[0], element);
        return leaf(round, from, offset);
      }
      case Operation::all_to_all: {
        const auto [from, offset] = find_part(incoming_[r], element);
        return leaf(round, from, outgoing_[from][r].begin + offset);
      }
      case Operation::send:
        return leaf(round, shape.root, element);
      case Operation::barrier:
        break;
    }
    return kUndefined;
  }
  static std::pair<int, std::int64_t> find_part(const Parts& parts, std::int64_t element) {
    int rank = 0;
    while (element >= parts[rank].end()) ++rank;
    return {rank, element - parts[rank].begin};
  }
  bool contributes_data() const {
    return operation() == Operation::all_reduce || operation() == Operation::reduce ||
           operation() == Operation::broadcast;
  }

  // The user writes new contents before each operation.
  void start_round(int r) {
    RankState& rank = ranks_[r];
    rank.step = 0;
    rank.landed = 0;
    rank.sends_before = rank.sends.size();
    for (const Space space : {Space::data, Space::input}) {
      const bool filled = space == Space::input || contributes_data();
      const auto count =
          static_cast<std::int64_t>(rank.spaces[static_cast<int>(space)].values.size());
      std::vector<Symbol> values;
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(filled ? leaf(rank.round, r, i) : kUndefined);
      }
      write(r, {r, space, 0, {0, count}}, values);
    }
    tick(r);
  }

  void end_round(int r) {
    RankState& rank = ranks_[r];
    if (!rank.receives.empty()) blame(r, "{} receives were never waited for", rank.receives.size());
    const auto& data = rank.spaces[static_cast<int>(Space::data)].values;
    for (std::size_t i = 0; i < data.size() && !problem_; ++i) {
      if (data[i] != expected(r, rank.round, static_cast<std::int64_t>(i))) {
        blame(r, "element {} of the result is not what it should be", i);
      }
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
  // The engine ends a plan when its sends have left.
  bool sends_left(int r) { return leave(r, ranks_[r].sends.size()); }
  bool leave(int r, std::size_t sends) {
    auto& all = ranks_[r].sends;
    for (std::size_t i = 0; i < sends && !eager_; ++i) {
      if (all[i].received_at == 0) return false;
    }
    for (std::size_t i = 0; i < sends; ++i) all[i].flushed = true;
    return true;
  }
  // A rank's own clock ticks once at each start and once per step.
  int clock_at_start(int r, int round) const {
    return 1 + round * (1 + static_cast<int>(plans_[r].steps.size()));
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
    const Needs& needs = plans_[r].needs;
    const bool shared = hosts_.of(at.rank) == hosts_.of(r) &&
                        ((at.space == Space::data && needs.shared_data) ||
                         (at.space == Space::input && needs.shared_input && !writes) ||
                         (at.space == Space::scratch && needs.shared_scratch));
    if (!shared) blame(r, "touches memory of rank {}, which is not shared", at.rank);
    return shared;
  }

  // What `at` means to rank r, which may be in another operation than the rank it looks at.
  Cells& cells_of(int r, const Location& at) {
    RankState& owner = ranks_[at.rank];
    const bool other =
        at.space == Space::scratch && plans_[r].needs.shared_scratch && ranks_[r].round % 2 == 1;
    return other ? owner.other_scratch : owner.spaces[static_cast<int>(at.space)];
  }

  std::vector<Symbol> read(int r, const Location& at) {
    if (!inside(r, at) || !may_touch(r, at, false)) return {};
    if (full_) {
      for (const PendingReceive& receive : ranks_[r].receives) {
        if (overlaps(receive.destination, at)) blame(r, "reads what is still being received");
      }
    }
    Cells& cells = cells_of(r, at);
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

  void write(int r, const Location& at, const std::vector<Symbol>& values) {
    if (!inside(r, at) || !may_touch(r, at, true)) return;
    RankState& rank = ranks_[r];
    if (full_) {
      for (const PendingReceive& receive : rank.receives) {
        if (overlaps(receive.destination, at)) blame(r, "writes where a message will land");
      }
      for (const PendingSend& send : sends_of(rank)) {
        const bool left =
            send.flushed || (send.received_at > 0 && rank.clock[send.peer] >= send.received_at);
        if (overlaps(send.source, at) && !left) blame(r, "overwrites what is still being sent");
      }
    }
    store(r, at, values);
  }

  // Those of this round: the others have left.
  static std::span<const PendingSend> sends_of(const RankState& rank) {
    return std::span(rank.sends).subspan(rank.sends_before);
  }

  void store(int r, const Location& at, const std::vector<Symbol>& values) {
    Cells& cells = cells_of(r, at);
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
    if (rank.round == rounds_) return false;
    if (rank.step == plans_[r].steps.size()) {
      if (!sends_left(r)) return false;
      end_round(r);
      return true;
    }
    const Step& step = plans_[r].steps[rank.step];
    switch (step.kind) {
      case StepKind::copy:
        copy(r, plans_[r].destinations(step)[0], plans_[r].sources(step)[0]);
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
        receive(r, step);
        break;
      case StepKind::wait:
        if (!wait(r, step.messages)) return false;
        break;
      case StepKind::flush:
        if (!flush(r, step.messages)) return false;
        break;
    }
    ++rank.step;
    tick(r);
    return true;
  }

  static bool is_partial(const Location& at) { return at.space == Space::partial; }

  void copy(int r, const Location& destination, const Location& source) {
    if (is_partial(destination) != is_partial(source)) {
      return blame(r, "takes an unfinished sum for a value");
    }
    if (destination.range.count != source.range.count) return blame(r, "copies another length");
    write(r, destination, read(r, source));
  }

  void reduce(int r, const Step& step) {
    std::vector<std::vector<Symbol>> sources;
    std::vector<std::uint8_t> levels;
    for (const Location& source : plans_[r].sources(step)) {
      sources.push_back(read(r, source));
      levels.push_back(source.level);
    }
    if (problem_) return;
    const std::size_t count = sources[0].size();
    std::vector<Symbol> sums;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Symbol> column;
      for (const auto& source : sources) {
        if (source.size() != count) return blame(r, "reduces sources of different lengths");
        column.push_back(source[i]);
      }
      sums.push_back(sum(column, levels));
    }
    std::vector<Symbol> results;
    for (const Symbol value : sums) results.push_back(finished(value));
    for (const Location& destination : plans_[r].destinations(step)) {
      if (destination.range.count != static_cast<std::int64_t>(count)) {
        return blame(r, "reduces into a destination of another length");
      }
      write(r, destination, is_partial(destination) ? sums : results);
    }
  }

  // Messages that are there for `to` from `from`.
  std::deque<Message>& channel(int from, int to) {
    return messages_[static_cast<std::int64_t>(from) * size() + to];
  }

  void send(int r, const Step& step) {
    const Location& source = plans_[r].sources(step)[0];
    Message message;
    message.values = read(r, source);
    message.partial = is_partial(source);
    message.clock = ranks_[r].clock;
    message.pending_send = ranks_[r].sends.size();
    ranks_[r].sends.push_back({source, step.peer, 0, false});
    channel(r, step.peer).push_back(std::move(message));
  }

  void receive(int r, const Step& step) {
    const Location& destination = plans_[r].destinations(step)[0];
    if (!inside(r, destination) || !may_touch(r, destination, true)) return;
    ranks_[r].receives.push_back({step.peer, destination});
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

  bool flush(int r, std::int64_t sends) {
    const std::size_t due = ranks_[r].sends_before + static_cast<std::size_t>(sends);
    if (due <= ranks_[r].sends.size()) return leave(r, due);
    blame(r, "flushes more sends than it made");
    return false;
  }

  void land(int r, const PendingReceive& receive) {
    RankState& rank = ranks_[r];
    Message message = std::move(channel(receive.peer, r).front());
    channel(receive.peer, r).pop_front();
    if (message.partial != is_partial(receive.destination)) {
      return blame(r, "takes an unfinished sum for a value");
    }
    if (static_cast<std::int64_t>(message.values.size()) != receive.destination.range.count) {
      return blame(r, "expects {} elements from rank {}, which sends {}",
                   receive.destination.range.count, receive.peer, message.values.size());
    }
    for (const PendingSend& send : sends_of(rank)) {
      const bool left = !full_ || send.flushed ||
                        (send.received_at > 0 && message.clock[send.peer] >= send.received_at);
      if (overlaps(send.source, receive.destination) && !left) {
        blame(r, "a message lands on what is still being sent");
      }
    }
    store(r, receive.destination, message.values);
    ranks_[receive.peer].sends[message.pending_send].received_at = clock_of(r) + 1;
    if (!full_) return;
    for (int i = 0; i < size(); ++i) rank.clock[i] = std::max(rank.clock[i], message.clock[i]);
  }

  bool pass_barrier(int host) {
    const std::vector<int>& members = hosts_.members(host);
    for (const int r : members) {
      if (!ranks_[r].at_barrier) return false;
    }
    std::vector<int> known(ranks_[members[0]].clock.size(), 0);
    for (const int r : members) {
      for (std::size_t i = 0; i < known.size() && full_; ++i) {
        known[i] = std::max(known[i], ranks_[r].clock[i]);
      }
    }
    for (const int r : members) {
      if (full_) ranks_[r].clock = known;
      ranks_[r].at_barrier = false;
      ++ranks_[r].epoch;
      ++ranks_[r].step;
      tick(r);
    }
    return true;
  }

  void check_ends() {
    for (int r = 0; r < size(); ++r) {
      if (ranks_[r].round == rounds_) continue;
      if (ranks_[r].step == plans_[r].steps.size()) {
        blame(r, "its peers do not ask for all that it sends");
        continue;
      }
      const Step& step = plans_[r].steps[ranks_[r].step];
      blame(r, "waits for ever at '{}'", to_string(step.kind));
    }
    for (const auto& [ends, messages] : messages_) {
      if (!messages.empty()) {
        blame(static_cast<int>(ends / size()), "sent rank {} more than it asks for", ends % size());
      }
    }
  }

  const std::vector<Plan>& plans_;
  const std::vector<Shape>& shapes_;
  const Order order_;
  const bool eager_;
  const Hosts hosts_;
  const bool full_;
  const int rounds_;
  const std::int64_t longest_;
  std::vector<Parts> outgoing_;  // all_to_all: by rank; else one for all
  std::vector<Parts> incoming_;  // all_to_all: by rank
  std::vector<RankState> ranks_;
  std::unordered_map<std::int64_t, std::deque<Message>> messages_;
  std::optional<std::string> problem_;
};

}  // namespace

std::vector<Shape> shapes_of(const Shape& shape) {
  std::vector<Shape> shapes(static_cast<std::size_t>(shape.ranks), shape);
  for (int rank = 0; rank < shape.ranks; ++rank) shapes[static_cast<std::size_t>(rank)].rank = rank;
  return shapes;
}

std::optional<std::string> check_plans(const std::vector<Plan>& plans,
                                       const std::vector<Shape>& shapes, Order order) {
  for (const bool eager : {true, false}) {
    if (auto problem = Checker(plans, shapes, order, eager).run()) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> check_plan(const Algorithm& algorithm, const Shape& shape) {
  const std::vector<Shape> shapes = shapes_of(shape);
  std::vector<Plan> plans;
  plans.reserve(shapes.size());
  for (const Shape& of_rank : shapes) plans.push_back(algorithm.make(of_rank));
  return check_plans(plans, shapes, algorithm.order);
}

}  // namespace lockstep
