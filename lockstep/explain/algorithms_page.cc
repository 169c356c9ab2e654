#include "lockstep/explain/algorithms_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/explain/candidates.h"
#include "lockstep/explain/case.h"
#include "lockstep/explain/report.h"
#include "lockstep/explain/simulate.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

namespace {

constexpr int kRanks = 8;
constexpr std::int64_t kCount = 8 << 10;  // one chunk everywhere, and 8 equal slices

constexpr Operation kOperations[] = {
    Operation::all_reduce, Operation::reduce, Operation::reduce_scatter, Operation::broadcast,
    Operation::all_gather, Operation::gather, Operation::scatter,        Operation::all_to_all,
    Operation::barrier,    Operation::send};

const char* picture_of(const Algorithm& algorithm) {
  struct Row {
    Operation operation;
    std::string_view algorithm;
    const char* file;
  };
  constexpr Row kPictures[] = {
      {Operation::all_reduce, "doubling", "plan-all_reduce-doubling.svg"},
      {Operation::all_reduce, "hierarchical", "plan-all_reduce-hierarchical.svg"},
      {Operation::broadcast, "tree", "plan-broadcast-tree.svg"},
  };
  for (const Row& row : kPictures) {
    if (row.operation == algorithm.operation && row.algorithm == algorithm.name) return row.file;
  }
  return nullptr;
}

Case case_of(const Algorithm& algorithm, int ranks) {
  Case of;
  of.operation = algorithm.operation;
  of.ranks = algorithm.operation == Operation::send ? 2 : ranks;
  of.hosts = usual_hosts(of.ranks, algorithm.needs);
  const bool parts = has_parts(of.operation);
  of.count = of.operation == Operation::barrier ? 0 : parts ? kCount / kRanks : kCount;
  return of;
}

// Messages that wait for one another on the longest way: the time, if nothing but the latency
// costs anything.
int depth(const Algorithm& algorithm, int ranks) {
  constexpr Prices kLatency{.latency_us = 1,
                            .message_us = 0,
                            .byte_us = 0,
                            .reduced_byte_us = 0,
                            .copied_byte_us = 0,
                            .barrier_us = 0};
  const Case of = case_of(algorithm, ranks);
  return static_cast<int>(look_ahead(of, algorithm, kLatency).end_us() + 0.5);
}

std::string times(double value) {
  return value == 0 ? "" : fmt::format("{:.3g}", value);
}

std::string row(const Algorithm& algorithm) {
  const Case of = case_of(algorithm, kRanks);
  const Outlook outlook = look_ahead(of, algorithm, Prices());
  Tally most;
  for (const Tally& one : outlook.tallies) {
    most.messages_sent = std::max(most.messages_sent, one.messages_sent);
    most.bytes_sent = std::max(most.bytes_sent, one.bytes_sent);
    most.bytes_reduced = std::max(most.bytes_reduced, one.bytes_reduced);
    most.bytes_copied = std::max(most.bytes_copied, one.bytes_copied);
    most.barriers = std::max(most.barriers, one.barriers);
  }
  const bool part = of.count == kCount / kRanks;
  const auto whole = static_cast<double>(of.count * of.size().bytes * (part ? kRanks : 1));
  const auto share = [&](std::int64_t bytes) {
    return times(whole == 0 ? 0 : static_cast<double>(bytes) / whole);
  };
  const char* picture = picture_of(algorithm);
  const std::string name = picture == nullptr ? fmt::format("{}", algorithm.name)
                                              : fmt::format("[{}]({})", algorithm.name, picture);
  const std::string only = algorithm.accepts == nullptr              ? ""
                           : algorithm.accepts == power_of_two_ranks ? "; ranks a power of two"
                                                                     : "; equal parts";
  const int deep = depth(algorithm, kRanks);
  return fmt::format("| {} | {}{} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name,
                     to_string(algorithm.needs), only,
                     algorithm.order == Order::any ? "any" : "canonical",
                     deep == 0 ? "" : fmt::format("{}, {}", deep, depth(algorithm, 64)),
                     times(static_cast<double>(most.messages_sent)), share(most.bytes_sent),
                     share(most.bytes_reduced), share(most.bytes_copied),
                     times(static_cast<double>(most.barriers)), algorithm.why);
}

// "doubling up to 16 KiB, then halving up to 1 MiB, then direct".
std::string chosen(Operation operation, int ranks) {
  std::string text;
  const Algorithm* current = nullptr;
  std::int64_t bytes_before = 0;
  for (std::int64_t bytes = 4; bytes <= 256 << 20; bytes *= 2) {
    Case of;
    of.operation = operation;
    of.ranks = ranks;
    of.count = bytes / 4;
    of.hosts = blocks_of_ranks(ranks, ranks);
    const Reach apart{.one_host = false, .shared_scratch = false};
    const Algorithm* best = choose(shape_to_choose(of), 4, apart, Prices());
    if (best != current && current != nullptr) {
      text += fmt::format("{} up to {}, ", current->name, binary_bytes(bytes_before));
    }
    current = best;
    bytes_before = bytes;
  }
  return text + std::string(current->name);
}

std::string choices() {
  std::string text =
      "| operation | 4 ranks | 7 ranks | 8 ranks | 64 ranks |\n|---|---|---|---|---|\n";
  for (const Operation operation : kOperations) {
    if (operation == Operation::barrier || operation == Operation::send) continue;
    text += fmt::format("| {}", to_string(operation));
    for (const int ranks : {4, 7, 8, 64}) text += fmt::format(" | {}", chosen(operation, ranks));
    text += " |\n";
  }
  return text;
}

}  // namespace

std::string algorithms_page() {
  std::string text =
      "# Algorithms\n\n"
      "<!-- Made by `lockstep plan --table`, from the plans themselves. -->\n\n"
      "Each is one file in [lockstep/plan](../lockstep/plan), whose head gives its source, "
      "restrictions and cost; all are\n"
      "proved by [checker.h](../lockstep/plan/checker.h). `lockstep plan OPERATION --ranks N "
      "--bytes B --algorithm A --svg FILE`\n"
      "shows what one does and draws it; `LOCKSTEP_ALGORITHM=all_reduce=ring` "
      "([settings](settings.md)) forces one.\n\n"
      "*Deep*: messages that wait for one another on the longest way, among 8 and 64 ranks. "
      "*Messages, sent, reduced, copied*,\n"
      "*barriers*: of the busiest of 8 ranks (of two hosts where hosts matter), for one chunk; "
      "bytes in tensors (of all parts,\n"
      "where there are parts). *Any* order: used only with `LOCKSTEP_ORDER=any`; all others give "
      "the same bits.\n";
  for (const Operation operation : kOperations) {
    text += fmt::format(
        "\n## {}\n\n"
        "| algorithm | needs | order | deep | messages | sent | reduced | copied | barriers | why "
        "|\n|---|---|---|---|---|---|---|---|---|---|\n",
        to_string(operation));
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.operation == operation) text += row(algorithm);
    }
  }
  text +=
      "\n## Which is chosen\n\n"
      "Of those that the group's transports allow, the first in the tables above that shares "
      "memory; between hosts of one rank\n"
      "each, the one that the cost model ([cost.h](../lockstep/plan/cost.h)) finds cheapest with "
      "the prices of this machine\n"
      "(`lockstep tune`, LOCKSTEP_TUNING). With the default prices, by bytes of the tensor, or of "
      "one part:\n\n" +
      choices() +
      "\n## Pictures\n\n"
      "Ranks down, time across. `lockstep plan … --svg` draws any other.\n\n"
      "![all_reduce by recursive doubling](plan-all_reduce-doubling.svg)\n\n"
      "![all_reduce over two hosts](plan-all_reduce-hierarchical.svg)\n\n"
      "![broadcast along a tree](plan-broadcast-tree.svg)\n";
  return text;
}

}  // namespace lockstep
