#include "lockstep/explain/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

std::string_view to_string(Space space) {
  constexpr std::string_view kNames[] = {"data", "input", "scratch", "partial"};
  static_assert(std::size(kNames) == kSpaceCount);
  return kNames[static_cast<int>(space)];
}
using lockstep::to_string;

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), ",");
  }
  return text;
}

std::string range_text(const Location& at) {
  if (at.range.count == 0) return fmt::format("{}[none]", to_string(at.space));
  if (at.range.count == 1) return fmt::format("{}[{}]", to_string(at.space), at.range.begin);
  return fmt::format("{}[{}..{}]", to_string(at.space), at.range.begin, at.range.end() - 1);
}

// Neighbouring ranks' same ranges are named together: "data[0..9] of ranks 0–7".
std::string locations_text(std::span<const Location> locations, int own) {
  constexpr int kGroupsMax = 6;
  std::string text;
  int groups = 0;
  for (std::size_t i = 0; i < locations.size();) {
    std::size_t end = i + 1;
    while (end < locations.size() && locations[end].rank == locations[end - 1].rank + 1 &&
           locations[end].space == locations[i].space &&
           locations[end].range == locations[i].range) {
      ++end;
    }
    if (++groups > kGroupsMax) {
      return text + fmt::format(" + {} more", locations.size() - i);
    }
    if (!text.empty()) text += " + ";
    text += range_text(locations[i]);
    const int first = locations[i].rank;
    const int last = locations[end - 1].rank;
    if (last > first) text += fmt::format(" of ranks {}–{}", first, last);
    if (last == first && first != own) text += fmt::format(" of rank {}", first);
    i = end;
  }
  return text;
}

std::string step_text(const Plan& plan, const Step& step, int rank) {
  const auto to = locations_text(plan.destinations(step), rank);
  const auto from = locations_text(plan.sources(step), rank);
  switch (step.kind) {
    case StepKind::copy:
      return fmt::format("copy     {} ← {}", to, from);
    case StepKind::reduce:
      return fmt::format("reduce   {} ← {}", to, from);
    case StepKind::barrier:
      return "barrier  with the ranks of this host";
    case StepKind::send:
      return fmt::format("send     {} to rank {}", from, step.peer);
    case StepKind::receive:
      return fmt::format("receive  {} from rank {}", to, step.peer);
    case StepKind::wait:
      return fmt::format("wait     until the first {} receive{} landed", step.messages,
                         step.messages == 1 ? " has" : "s have");
    case StepKind::flush:
      return fmt::format("flush    until the first {} send{} left", step.messages,
                         step.messages == 1 ? " has" : "s have");
  }
  return "";
}

template <class Of>
std::array<double, 3> spread(const Outlook& outlook, Of of) {
  std::vector<double> values;
  for (std::size_t i = 0; i < outlook.ranks.size(); ++i) values.push_back(of(i));
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

struct Total {
  const char* name;
  std::int64_t Tally::*value;
};
constexpr Total kTotals[] = {
    {"messages sent", &Tally::messages_sent},
    {"messages received", &Tally::messages_received},
    {"bytes sent", &Tally::bytes_sent},
    {"bytes received", &Tally::bytes_received},
    {"bytes reduced", &Tally::bytes_reduced},
    {"bytes copied", &Tally::bytes_copied},
    {"copies", &Tally::copies},
    {"reductions", &Tally::reductions},
    {"barriers", &Tally::barriers},
};

std::string how(const Outlook& outlook, int ranks) {
  if (outlook.simulated) return "simulated";
  return static_cast<int>(outlook.ranks.size()) == ranks
             ? "estimated"
             : fmt::format("estimated from {} ranks", outlook.ranks.size());
}

int hosts_in(const Case& of) {
  return of.hosts.empty() ? 1 : of.hosts.back() + 1;
}

}  // namespace

std::string human_us(double us) {
  if (us < 10) return fmt::format("{:.2f} µs", us);
  if (us < 1000) return fmt::format("{:.1f} µs", us);
  if (us < 1e6) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.2f} s", us / 1e6);
}

std::string binary_bytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string describe(const Case& of) {
  std::string text(to_string(of.operation));
  if (of.operation != Operation::barrier) {
    text += fmt::format(" of {} ({} {})", binary_bytes(of.count * of.size().bytes),
                        grouped(of.count), to_string(of.dtype));
  }
  text += fmt::format(" among {} rank{}", of.ranks, of.ranks == 1 ? "" : "s");
  const int hosts = hosts_in(of);
  if (hosts == of.ranks && hosts > 1) return text + ", each on a host of its own";
  return text + (hosts == 1 ? " on one host" : fmt::format(" on {} hosts", hosts));
}

std::string steps_text(const Plan& plan, const Case& of, int rank, std::size_t lines_max) {
  std::string text = fmt::format("rank {} of {}: {} steps", rank, of.ranks,
                                 grouped(static_cast<std::int64_t>(plan.steps.size())));
  if (plan.scratch_count > 0) {
    text += fmt::format(", scratch of {}", binary_bytes(plan.scratch_count * of.size().bytes));
  }
  if (plan.partial_count > 0) {
    text += fmt::format(", {} of unfinished sums",
                        binary_bytes(plan.partial_count * of.size().partial_bytes));
  }
  text += "\n";
  const std::size_t last = std::max<std::size_t>(lines_max / 4, 1);
  const std::size_t first = lines_max - last;
  const bool elided = plan.steps.size() > lines_max + 1;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (elided && i == first) {
      text += fmt::format("        … {} more …\n",
                          grouped(static_cast<std::int64_t>(plan.steps.size() - first - last)));
      i = plan.steps.size() - last;
    }
    text += fmt::format("{:>6}  {}\n", i, step_text(plan, plan.steps[i], rank));
  }
  return text;
}

std::string to_text(const Candidates& candidates) {
  std::string text = fmt::format("  {:<20} {:<26} {:<10} {:>10} {:>10}  {}\n", "algorithm", "needs",
                                 "order", "predicted", "formula", "why");
  for (const Candidate& candidate : candidates.all) {
    const Algorithm& algorithm = *candidate.algorithm;
    const auto& outlook = candidate.outlook;
    text += fmt::format("  {:<20} {:<26} {:<10} {:>10} {:>10}  {}\n", algorithm.name,
                        to_string(algorithm.needs),
                        algorithm.order == Order::canonical ? "canonical" : "any",
                        outlook ? human_us(outlook->end_us()) : "-",
                        outlook && outlook->formula_us ? human_us(*outlook->formula_us) : "-",
                        outlook ? algorithm.why : candidate.refusal);
  }
  text += "\nchosen\n";
  for (const auto& choice : candidates.choices) {
    text +=
        fmt::format("  {:<32} {}\n", choice.when,
                    choice.algorithm == nullptr ? "nothing can be used" : choice.algorithm->name);
  }
  return text;
}

std::string totals_text(const Outlook& outlook, const Case& of) {
  const bool all = static_cast<int>(outlook.ranks.size()) == of.ranks;
  std::string text =
      fmt::format("  {:<18} {:>14} {:>14} {:>14}\n",
                  all ? "per rank" : fmt::format("of {} ranks", outlook.ranks.size()), "minimum",
                  "median", "maximum");
  for (const Total& total : kTotals) {
    const auto [low, middle, high] = spread(outlook, [&](std::size_t i) {
      return static_cast<double>(outlook.tallies[i].*total.value);
    });
    if (high == 0) continue;
    text += fmt::format(
        "  {:<18} {:>14} {:>14} {:>14}\n", total.name, grouped(static_cast<std::int64_t>(low)),
        grouped(static_cast<std::int64_t>(middle)), grouped(static_cast<std::int64_t>(high)));
  }
  const auto [low, middle, high] = spread(outlook, [&](std::size_t i) { return outlook.us[i]; });
  text += fmt::format("  {:<18} {:>15} {:>15} {:>15}\n", "predicted time", human_us(low),
                      human_us(middle), human_us(high));
  if (outlook.simulated) {
    text += "  (simulated: every move of every rank)\n";
  } else {
    text +=
        "  (estimated: the work of each rank and a latency per wait; too many moves to "
        "simulate)\n";
  }
  if (outlook.formula_us) {
    text += fmt::format("  the table goes by its formula: {}\n", human_us(*outlook.formula_us));
  }
  return text;
}

namespace {

Json totals_json(const Outlook& outlook) {
  Json json;
  const auto add = [&](const std::string& name, std::array<double, 3> values, bool whole) {
    const auto value = [&](double v) {
      return whole ? Json(static_cast<std::int64_t>(v)) : Json(v);
    };
    json[name] = {
        {"min", value(values[0])}, {"median", value(values[1])}, {"max", value(values[2])}};
  };
  for (const Total& total : kTotals) {
    std::string name = total.name;
    std::ranges::replace(name, ' ', '_');
    add(name,
        spread(outlook,
               [&](std::size_t i) { return static_cast<double>(outlook.tallies[i].*total.value); }),
        true);
  }
  add("predicted_us", spread(outlook, [&](std::size_t i) { return outlook.us[i]; }), false);
  return json;
}

Json location_json(const Location& at) {
  return {{"rank", at.rank},
          {"space", to_string(at.space)},
          {"begin", at.range.begin},
          {"count", at.range.count}};
}

Json step_json(const Plan& plan, const Step& step) {
  Json json{{"kind", to_string(step.kind)}};
  if (step.peer >= 0) json["peer"] = step.peer;
  if (step.kind == StepKind::wait || step.kind == StepKind::flush) json["first"] = step.messages;
  for (const Location& at : plan.destinations(step)) json["to"].push_back(location_json(at));
  for (const Location& at : plan.sources(step)) json["from"].push_back(location_json(at));
  return json;
}

}  // namespace

std::string to_json(const Case& of, const Algorithm& algorithm, const Plan& plan, int rank,
                    const Outlook& outlook, const Proof* proof, const Candidates& candidates) {
  Json json{{"operation", to_string(of.operation)},
            {"algorithm", algorithm.name},
            {"needs", to_string(algorithm.needs)},
            {"order", algorithm.order == Order::canonical ? "canonical" : "any"},
            {"ranks", of.ranks},
            {"hosts", hosts_in(of)},
            {"root", of.root},
            {"count", of.count},
            {"dtype", to_string(of.dtype)},
            {"predicted_us", outlook.end_us()},
            {"predicted_how", how(outlook, of.ranks)}};
  if (outlook.formula_us) json["formula_us"] = *outlook.formula_us;
  json["per_rank"] = totals_json(outlook);
  if (proof != nullptr) {
    json["checked"] = {{"correct", !proof->problem.has_value()},
                       {"what", proof->what},
                       {"left_out", proof->left_out}};
    if (proof->problem) json["checked"]["problem"] = *proof->problem;
  }
  for (const Candidate& candidate : candidates.all) {
    Json row{{"algorithm", candidate.algorithm->name}};
    if (candidate.outlook) row["predicted_us"] = candidate.outlook->end_us();
    if (candidate.outlook && candidate.outlook->formula_us) {
      row["formula_us"] = *candidate.outlook->formula_us;
    }
    if (!candidate.outlook) row["refused"] = candidate.refusal;
    json["candidates"].push_back(row);
  }
  for (const auto& choice : candidates.choices) {
    json["chosen"][choice.when] =
        choice.algorithm == nullptr ? Json() : Json(choice.algorithm->name);
  }
  json["rank"] = rank;
  json["steps"] = Json::array();
  for (const Step& step : plan.steps) json["steps"].push_back(step_json(plan, step));
  return json.dump() + "\n";
}

}  // namespace lockstep
