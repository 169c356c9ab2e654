// The trees that several algorithms share.
#pragma once

#include <vector>

#include "lockstep/plan/order.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

// The reduction tree of reduce and all_reduce: who merges which blocks of the canonical order, and
// from whom it gets the other half. What one rank does on the way up, level by level. A block's
// value is held by root if root is in the block, else by the block's first rank; so the last merge
// happens at root.
struct TreeWay {
  struct Merge {
    int peer;        // who holds the other half
    bool peer_left;  // the other half has the lower ranks
    int level;       // of both halves
    bool leaf;       // the other half is one rank's value, not a sum
  };
  std::vector<Merge> merges;
  int parent = -1;  // who takes this rank's value in the end; -1 at root
  int level = 0;    // of that value
};
TreeWay tree_way(int rank, int ranks, int root);

// The binomial tree of a broadcast from 0 among 0 … count-1: who brings it to `index`, and how many
// it serves, itself included.
struct Binomial {
  int parent = -1;  // -1: none, at 0
  int span = 1;
};
Binomial binomial(int index, int count);

}  // namespace lockstep
