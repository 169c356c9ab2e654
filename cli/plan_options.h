// The arguments of `lockstep plan`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/explain/case.h"
#include "lockstep/plan/cost.h"
#include "lockstep/plan/plan.h"

namespace lockstep::cli {

struct PlanOptions {
  bool help = false;
  bool table = false;
  Case of;
  int hosts = 0;          // 0: not told
  std::string algorithm;  // empty: what the table chooses
  int rank = 0;
  Order order = Order::canonical;
  std::string svg;     // a file; empty: no drawing
  std::string tuning;  // a file; empty: not told
  bool json = false;
  bool check = true;
};

// Throws Error(invalid_argument) naming the argument and what is allowed.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments);
std::string plan_help();

}  // namespace lockstep::cli
