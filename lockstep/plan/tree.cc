#include "lockstep/plan/tree.h"

namespace lockstep {

TreeWay tree_way(int rank, int ranks, int root) {
  const auto holder = [&](int begin, int level) {
    return root >> level == begin >> level ? root : begin;
  };
  TreeWay way;
  for (; (1 << way.level) < ranks; ++way.level) {
    const int span = 1 << way.level;
    const int own = rank / span * span;
    const int left = own & ~span;
    const int right = left + span;
    if (right >= ranks) continue;  // there is no other half: the value is the larger block's
    const int other = own == left ? right : left;
    const int peer = holder(other, way.level);
    if (holder(left, way.level + 1) != rank) {
      way.parent = peer;
      return way;
    }
    way.merges.push_back({peer, other == left, way.level, span == 1 || other + 1 == ranks});
  }
  return way;
}

Binomial binomial(int index, int count) {
  Binomial place;
  for (; place.span < count; place.span *= 2) {
    if ((index & place.span) == 0) continue;
    place.parent = index - place.span;
    break;
  }
  return place;
}

}  // namespace lockstep
