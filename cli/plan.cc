#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/plan_options.h"
#include "lockstep/base/error.h"
#include "lockstep/env/files.h"
#include "lockstep/explain/algorithms_page.h"
#include "lockstep/explain/candidates.h"
#include "lockstep/explain/drawing.h"
#include "lockstep/explain/outlook.h"
#include "lockstep/explain/proof.h"
#include "lockstep/explain/report.h"
#include "lockstep/group/settings.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kStepLinesMax = 32;

Prices prices_of(const PlanOptions& options) {
  if (!options.tuning.empty()) return read_prices("--tuning", options.tuning);
  const char* file = std::getenv("LOCKSTEP_TUNING");
  return file == nullptr ? Prices() : read_prices("LOCKSTEP_TUNING", file);
}

const Algorithm& algorithm_of(const PlanOptions& options, const Candidates& candidates) {
  if (!options.algorithm.empty()) {
    return *find_algorithm(options.of.operation, options.algorithm);
  }
  for (const auto& choice : candidates.choices) {
    if (choice.algorithm != nullptr) return *choice.algorithm;
  }
  fail(Code::invalid_argument, "nothing can carry out {}", describe(options.of));
}

void print_proof(const Proof& proof) {
  if (proof.problem) {
    fmt::print("WRONG: {}\n", *proof.problem);
    return;
  }
  fmt::print("checked: {}\n", proof.what);
  if (!proof.left_out.empty()) fmt::print("left out: {}\n", proof.left_out);
}

int show(const PlanOptions& options) {
  const Prices prices = prices_of(options);
  Candidates candidates;
  if (options.algorithm.empty()) {
    candidates = compare(options.of, options.hosts, prices, options.order);
  }
  const Algorithm& algorithm = algorithm_of(options, candidates);
  Case of = options.of;
  of.hosts = options.hosts == 0 ? usual_hosts(of.ranks, algorithm.needs)
                                : blocks_of_ranks(of.ranks, options.hosts);
  require_plans(of, algorithm);
  const Plan plan = algorithm.make(shape_of(of, algorithm, options.rank));
  const Outlook outlook = look_ahead(of, algorithm, prices);
  std::optional<Proof> proof;
  if (options.check) proof = prove(of, algorithm);
  if (options.json) {
    fmt::print("{}", to_json(of, algorithm, plan, options.rank, outlook, proof ? &*proof : nullptr,
                             candidates));
  } else {
    if (!candidates.all.empty()) fmt::print("{}\n", to_text(candidates));
    fmt::print("{}: {} ({})\n\n", algorithm.name, describe(of), algorithm.why);
    fmt::print("{}\n", steps_text(plan, of, options.rank, kStepLinesMax));
    fmt::print("{}\n", totals_text(outlook, of));
    if (proof) print_proof(*proof);
  }
  if (!options.svg.empty()) {
    write_file_atomically(options.svg, draw(of, algorithm, prices));
    if (!options.json) fmt::print("drawn: {}\n", options.svg);
  }
  return proof && proof->problem ? 1 : 0;
}

}  // namespace

int plan_command(int argc, char** argv) {
  try {
    const PlanOptions options = parse_plan_options(std::vector<std::string>(argv + 1, argv + argc));
    if (options.help) {
      fmt::print("{}", plan_help());
      return 0;
    }
    if (options.table) {
      fmt::print("{}", algorithms_page());
      return 0;
    }
    return show(options);
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep plan: {}\n", error.what());
    return error.code() == Code::invalid_argument ? 2 : 1;
  }
}

}  // namespace lockstep::cli
