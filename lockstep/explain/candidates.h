// Candidates: the algorithms of an operation side by side, and when the table chooses which.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/explain/case.h"
#include "lockstep/explain/outlook.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

// Where a group may run, and where its tensor may lie.
struct Situation {
  std::string name;  // "one host, tensor in the arena"
  std::vector<int> hosts;
  Reach reach;
};
// Of ranks on so many hosts; 0: all that are of interest.
std::vector<Situation> situations(int ranks, int hosts);

struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::optional<Outlook> outlook;  // absent: no plan can be made for this case
  std::string refusal;             // then: why
  std::vector<int> hosts;          // where its ranks were taken to be
};

struct Candidates {
  std::vector<Candidate> all;
  struct Choice {
    std::string when;
    const Algorithm* algorithm = nullptr;  // null: nothing can be used
  };
  std::vector<Choice> choices;
};

// `of.hosts` is not looked at; `hosts` as for situations().
Candidates compare(const Case& of, int hosts, const Prices& prices, Order order);

}  // namespace lockstep
