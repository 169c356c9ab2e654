#include "lockstep/engine/blame.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {

namespace {

constexpr std::size_t kLinesMax = 16;

// One rank's collectives, by number. What goes between two ranks only has numbers of its own.
struct Track {
  int rank = 0;
  std::map<std::uint64_t, const RecordedOperation*> operations;
  std::uint64_t front = 0;  // the first that is not complete; after the last if all are
  const RecordedOperation* stuck = nullptr;  // of any kind: the first that is not complete

  const RecordedOperation* at(std::uint64_t number) const {
    const auto found = operations.find(number);
    return found == operations.end() ? nullptr : found->second;
  }
  const RecordedOperation* last() const {
    return operations.empty() ? nullptr : operations.rbegin()->second;
  }
  bool waits() const { return stuck != nullptr && !stuck->waits_for.empty(); }
};

using Tracks = std::vector<Track>;

Track track_of(const FlightRecord& record) {
  Track track;
  track.rank = record.rank;
  for (const RecordedOperation& operation : record.operations) {
    if (track.stuck == nullptr && operation.state != kComplete) track.stuck = &operation;
    if (operation.operation == "send" || operation.operation == "recv") continue;
    track.operations[operation.number] = &operation;
  }
  for (const auto& [number, operation] : track.operations) {
    track.front = number;
    if (operation->state != kComplete) return track;
  }
  if (!track.operations.empty()) ++track.front;
  return track;
}

// What the ranks called at one number: which ranks called which.
using Calls = std::map<std::string_view, std::vector<int>>;

std::string_view first_part(const Calls& calls) {
  const auto most =
      std::ranges::max_element(calls, {}, [](const auto& call) { return call.second.size(); });
  return most->first;
}

bool has_majority(const Calls& calls) {
  const std::size_t most = calls.at(first_part(calls)).size();
  return std::ranges::count_if(calls, [&](const auto& c) { return c.second.size() == most; }) == 1;
}

std::vector<int> without(const Calls& calls, std::string_view left_out) {
  std::vector<int> ranks;
  for (const auto& [what, callers] : calls) {
    if (what != left_out) ranks.insert(ranks.end(), callers.begin(), callers.end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

bool find_divergence(const Tracks& tracks, Blame& blame) {
  std::map<std::uint64_t, Calls> by_number;
  for (const Track& track : tracks) {
    for (const auto& [number, operation] : track.operations) {
      by_number[number][operation->what].push_back(track.rank);
    }
  }
  for (const auto& [number, calls] : by_number) {
    if (calls.size() < 2) continue;
    blame.verdict = Verdict::diverged;
    blame.number = number;
    blame.what = first_part(calls);
    std::string sides;
    if (has_majority(calls)) {
      blame.ranks = without(calls, blame.what);
      for (const auto& [what, ranks] : calls) {
        if (what != blame.what) sides += fmt::format("{} called {}, ", rank_list(ranks), what);
      }
      blame.summary =
          fmt::format("{} diverged first, at number {}: {}{} {}", rank_list(blame.ranks), number,
                      sides, rank_list(calls.at(blame.what)), blame.what);
      return true;
    }
    blame.ranks = without(calls, "");
    for (const auto& [what, ranks] : calls) {
      sides += fmt::format("{}{} called {}", sides.empty() ? "" : ", ", rank_list(ranks), what);
    }
    blame.summary = fmt::format("{} part at number {}, and no side has a majority: {}",
                                rank_list(blame.ranks), number, sides);
    return true;
  }
  return false;
}

// Where the group stood: the first operation that is not complete everywhere.
struct Front {
  std::uint64_t number = 0;
  std::string what;            // empty: nobody called it
  std::vector<int> absent;     // never called it
  std::vector<int> inside;     // called it, and it is not complete there
  std::vector<int> beyond;     // completed it
  std::set<int> awaited;       // by anybody, in whatever it was stuck in
  std::vector<int> unwaiting;  // recorded, awaited, and waiting for nobody
};

// Of ranks that did not come, those that waited for others elsewhere are not the cause, unless all
// of them did.
void keep_unwaiting(const Tracks& tracks, std::vector<int>& ranks) {
  std::vector<int> kept;
  for (const Track& track : tracks) {
    if (!track.waits() && std::ranges::binary_search(ranks, track.rank)) kept.push_back(track.rank);
  }
  if (!kept.empty()) ranks = std::move(kept);
}

Front front_of(const Tracks& tracks) {
  Front front;
  front.number = std::ranges::min_element(tracks, {}, &Track::front)->front;
  for (const Track& track : tracks) {
    const RecordedOperation* operation = track.at(front.number);
    if (operation != nullptr) front.what = operation->what;
    if (track.front > front.number) {
      front.beyond.push_back(track.rank);
    } else {
      (operation == nullptr ? front.absent : front.inside).push_back(track.rank);
    }
    if (track.waits()) {
      front.awaited.insert(track.stuck->waits_for.begin(), track.stuck->waits_for.end());
    }
  }
  for (const Track& track : tracks) {
    if (front.awaited.contains(track.rank) && !track.waits()) {
      front.unwaiting.push_back(track.rank);
    }
  }
  keep_unwaiting(tracks, front.absent);
  return front;
}

bool find_stopped(const Front& front, Blame& blame) {
  blame.number = front.number;
  blame.what = front.what;
  std::vector<int> there = front.inside;
  there.insert(there.end(), front.beyond.begin(), front.beyond.end());
  std::ranges::sort(there);
  if (!front.absent.empty() && !there.empty()) {
    blame.ranks = front.absent;
    blame.summary = fmt::format("{} stopped first, before {}, which {} called",
                                rank_list(blame.ranks), front.what, rank_list(there));
  } else if (!front.beyond.empty() && !front.inside.empty()) {
    blame.ranks = front.inside;
    blame.summary = fmt::format("{} stopped first, in {}, which is complete on {}",
                                rank_list(blame.ranks), front.what, rank_list(front.beyond));
  } else if (!front.unwaiting.empty()) {
    blame.ranks = front.unwaiting;
    blame.summary =
        fmt::format("{} stopped first: others wait for what it does next, and it waits for nobody",
                    rank_list(blame.ranks));
  } else {
    return false;
  }
  blame.verdict = Verdict::stopped;
  return true;
}

std::vector<int> missing_ranks(const Tracks& tracks, int ranks) {
  std::set<int> missing;
  for (int rank = 0; rank < ranks; ++rank) missing.insert(missing.end(), rank);
  for (const Track& track : tracks) missing.erase(track.rank);
  return {missing.begin(), missing.end()};
}

// The ranks without a record, unless the others wait for others. Where the first error is that a
// rank was lost, what the others were about to do when it broke their group says nothing.
std::vector<int> lost_ranks(const std::vector<int>& missing, const Front& front,
                            const std::string& first_error_code) {
  if (first_error_code == to_string(Code::peer_lost)) return missing;
  std::vector<int> awaited;
  std::ranges::copy_if(missing, std::back_inserter(awaited),
                       [&](int rank) { return front.awaited.contains(rank); });
  return front.awaited.empty() ? missing : awaited;
}

void blame_missing(const std::vector<int>& lost, const Front& front, Blame& blame) {
  blame.verdict = Verdict::missing;
  blame.ranks = lost;
  blame.number = front.number;
  blame.what = front.what;
  blame.summary = fmt::format(
      "{} left no record: killed, frozen, ended without an error, or the file is not among these",
      rank_list(lost));
  if (!front.what.empty()) {
    std::vector<int> there = front.inside;
    there.insert(there.end(), front.beyond.begin(), front.beyond.end());
    std::ranges::sort(there);
    blame.summary += fmt::format("; {} called {}", rank_list(there), front.what);
  }
}

void blame_nobody(const Front& front, Blame& blame) {
  if (!front.what.empty()) {
    blame.summary =
        fmt::format("no rank diverged or stopped before the others: all called {}", front.what);
  } else if (!front.awaited.empty()) {
    blame.summary = "no rank diverged or stopped before the others: they wait for each other";
  } else {
    blame.summary = fmt::format(
        "no rank diverged or stopped: all {} collectives are complete everywhere", front.number);
  }
}

std::vector<Standing> standings_of(const Tracks& tracks, const Blame& blame) {
  std::vector<Standing> standings(static_cast<std::size_t>(blame.ranks_of_group));
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    standings[rank].rank = static_cast<int>(rank);
  }
  for (const Track& track : tracks) {
    Standing& standing = standings[static_cast<std::size_t>(track.rank)];
    standing.recorded = true;
    const RecordedOperation* operation =
        blame.verdict == Verdict::diverged ? track.at(blame.number) : track.stuck;
    if (operation == nullptr) operation = track.last();
    if (operation == nullptr) continue;
    standing.what = operation->what;
    standing.state = operation->state;
    standing.waits_for = operation->waits_for;
  }
  return standings;
}

std::string words(const Standing& standing) {
  if (!standing.recorded) return "no record";
  if (standing.what.empty()) return "called no operation";
  std::string text = fmt::format("{}: {}", standing.what, standing.state);
  if (!standing.waits_for.empty()) {
    text += fmt::format(", waiting for {}", rank_list(standing.waits_for));
  }
  return text;
}

std::string time_of(std::int64_t unix_us) {
  const std::time_t seconds = unix_us / 1'000'000;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::diverged:
      return "diverged";
    case Verdict::stopped:
      return "stopped";
    case Verdict::missing:
      return "missing";
    case Verdict::unclear:
      return "unclear";
  }
  return "unknown";
}

Blame blame(const std::vector<FlightRecord>& records) {
  Blame blame;
  blame.job = records.front().job;
  blame.group = records.front().group;
  const FlightRecord& first = *std::ranges::min_element(records, {}, &FlightRecord::written_us);
  blame.error = fmt::format("{}: {}", first.error_code, first.error);
  Tracks tracks;
  for (const FlightRecord& record : records) {
    blame.ranks_of_group = std::max(blame.ranks_of_group, record.ranks);
    tracks.push_back(track_of(record));
  }
  std::ranges::sort(tracks, {}, &Track::rank);
  if (!find_divergence(tracks, blame)) {
    const Front front = front_of(tracks);
    const std::vector<int> lost =
        lost_ranks(missing_ranks(tracks, blame.ranks_of_group), front, first.error_code);
    if (!lost.empty()) {
      blame_missing(lost, front, blame);
    } else if (!find_stopped(front, blame)) {
      blame_nobody(front, blame);
    }
  }
  blame.standings = standings_of(tracks, blame);
  return blame;
}

std::string to_text(const Blame& blame) {
  std::string text = blame.summary + "\n";
  std::map<std::string, std::vector<int>> by_words;
  for (const Standing& standing : blame.standings) {
    by_words[words(standing)].push_back(standing.rank);
  }
  std::vector<std::pair<std::string, std::vector<int>>> lines(by_words.begin(), by_words.end());
  std::ranges::sort(lines, {}, [](const auto& line) { return line.second.front(); });
  for (std::size_t i = 0; i < std::min(lines.size(), kLinesMax); ++i) {
    text += fmt::format("  {}: {}\n", rank_list(lines[i].second), lines[i].first);
  }
  if (lines.size() > kLinesMax) {
    text += fmt::format("  … and {} more; --json has all\n", lines.size() - kLinesMax);
  }
  return text + fmt::format("first error: {}\n", blame.error);
}

std::string to_json(const Blame& blame) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (const Standing& standing : blame.standings) {
    ranks.push_back({{"rank", standing.rank},
                     {"recorded", standing.recorded},
                     {"what", standing.what},
                     {"state", standing.state},
                     {"waits_for", standing.waits_for}});
  }
  const Json json = {{"verdict", to_string(blame.verdict)},
                     {"ranks", blame.ranks},
                     {"number", blame.number},
                     {"what", blame.what},
                     {"summary", blame.summary},
                     {"error", blame.error},
                     {"job", blame.job},
                     {"group", blame.group},
                     {"standings", ranks}};
  return json.dump();
}

std::vector<std::vector<FlightRecord>> sort_records(std::vector<FlightRecord> records,
                                                    const std::vector<std::string>& names,
                                                    std::vector<std::string>& notes) {
  std::map<std::string, std::pair<std::size_t, std::int64_t>> jobs;
  for (const FlightRecord& record : records) {
    auto& [count, latest_us] = jobs[record.job];
    ++count;
    latest_us = std::max(latest_us, record.written_us);
  }
  if (jobs.empty()) return {};
  const std::string job =
      std::ranges::max_element(jobs, {}, [](const auto& j) { return j.second; })->first;
  std::map<std::string, std::map<int, std::size_t>> groups;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const FlightRecord& record = records[i];
    if (record.job != job) {
      notes.push_back(fmt::format("'{}' is of another job ({}, {}): left out", names[i], record.job,
                                  time_of(record.written_us)));
      continue;
    }
    const auto [place, added] = groups[record.group].try_emplace(record.rank, i);
    if (added) continue;
    const bool newer = records[place->second].written_us < record.written_us;
    notes.push_back(fmt::format("'{}' and '{}' are both of rank {}: the older is left out",
                                names[place->second], names[i], record.rank));
    if (newer) place->second = i;
  }
  std::vector<std::vector<FlightRecord>> sorted;
  for (const auto& [group, ranks] : groups) {
    auto& members = sorted.emplace_back();
    for (const auto& [rank, i] : ranks) members.push_back(std::move(records[i]));
  }
  return sorted;
}

}  // namespace lockstep
