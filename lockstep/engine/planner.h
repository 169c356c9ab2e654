// Planner: decides how an operation is carried out on a group's fabric, and remembers it. The same
// calls on all ranks lead to the same decisions.
//
// Thread rule: one thread at a time (the engine's lock).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/engine/execution.h"
#include "lockstep/engine/fabric.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

struct PlannerOptions {
  Prices prices;
  Order order = Order::canonical;
  // Algorithms that are asked for by name, by operation. Where one cannot be used, that operation
  // is refused with Error(unsupported).
  std::map<Operation, std::string> forced;
};

// Everything that is decided about one operation.
struct Decision {
  const Algorithm* algorithm = nullptr;
  std::shared_ptr<const Plan> plan;
  Announcement announcement;  // its sequence is the engine's to give
  Placement data;
  Placement input;

  // Assignment that leaves an equal plan's count of holders alone.
  void take(const Decision& other) {
    if (plan != other.plan) plan = other.plan;
    algorithm = other.algorithm;
    announcement = other.announcement;
    data = other.data;
    input = other.input;
  }
};

class Planner {
 public:
  Planner(const Fabric& fabric, PlannerOptions options);

  // Allocates nothing for a shape that was decided before. Throws Error(unsupported) when nothing
  // can carry the operation out. Good until the next call.
  const Decision& decide(const Request& request);

  void add_region(const SharedRegion* region);
  void remove_region(const SharedRegion* region);

 private:
  struct Key {
    Operation operation;
    Reach reach;
    int root;
    int peer;
    std::int64_t count;
    std::int64_t element_bytes;
    std::uint64_t counts;  // a checksum: of all of them
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  struct Entry {
    const Algorithm* algorithm = nullptr;
    std::shared_ptr<const Plan> plan;
  };

  Placement place_of(const std::byte* begin, std::int64_t count, DType dtype) const;
  Shape shape_of(const Request& request) const;
  Entry make(const Request& request, const Reach& reach) const;

  const Fabric& fabric_;
  const PlannerOptions options_;
  const bool one_host_;
  const bool shares_;  // some host holds several ranks
  std::vector<const SharedRegion*> regions_;
  std::unordered_map<Key, Entry, Hash> entries_;
  // What was asked last: training asks the same again and again.
  Request last_request_;
  Decision last_;
};

}  // namespace lockstep
