#include <algorithm>

#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

void mixed(RankWriter& rank, int forward, int backward) {
  rank.f(forward);
  rank.mix_with_next();
  rank.bw(backward);
}

}  // namespace

Schedule dualpipev(int p, int m) {
  const int written = std::max(m, 2 * p);
  Schedule s = blank("dualpipev", p, 2, m, Placement::VShape);
  s.splits_backward = true;
  for (int r = 0; r < p; ++r) {
    RankWriter rank(s.ranks[r]);
    const int below = p - r - 1;  // ranks that a micro-batch visits before it returns to this one
    for (int i = 0; i < 2 * below; ++i) rank.f(0);
    for (int i = 0; i < r + 1; ++i) {
      rank.f(0);
      rank.f(1);
    }
    for (int i = 0; i < below; ++i) {
      rank.b(1);
      rank.w();
      rank.f(1);
    }
    for (int i = 0; i < written - 2 * p + r + 1; ++i) {
      if (i == 0 && r == p - 1) {  // no backward is available yet to mix with chunk 0's forward
        rank.f(0);
        rank.bw(1);
      } else {
        mixed(rank, 0, 1);
      }
      mixed(rank, 1, 0);
    }
    for (int i = 0; i < below; ++i) {
      rank.bw(1);
      mixed(rank, 1, 0);
    }
    // The second half of the last r + 1 pairs of backwards is split, to provide W for the bubble that
    // follows.
    for (int i = 0; i < 2 * (r + 1); ++i) {
      const int chunk = i % 2 == 0 ? 1 : 0;
      if (i >= r + 1)
        rank.b(chunk);
      else
        rank.bw(chunk);
    }
    for (int i = 0; i < below; ++i) {
      rank.w();
      rank.b(0);
    }
    rank.all_w();
  }
  keep_micro_batches(s, m);
  promise(s, 2 * p + 1);
  return s;
}

}  // namespace quintet::schedule
