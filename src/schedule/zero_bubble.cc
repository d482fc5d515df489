#include <algorithm>

#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

// Rank r runs `depth` (p - r - 1) forwards ahead. Its W are delayed by `depth` r micro-batches, so all ranks
// hold the same number of activations and the delayed W fill the bubble at the end.
Schedule zero_bubble(const char* name, int p, int m, int depth) {
  Schedule s = blank(name, p, 1, m, Placement::Looped);
  s.splits_backward = true;
  s.max_in_flight.assign(p, std::min(m, depth * (p - 1) + 1));
  for (int r = 0; r < p; ++r) {
    const int ahead = std::min(m, depth * (p - r - 1));
    RankWriter rank(s.ranks[r]);
    for (int i = 0; i < ahead; ++i) rank.f(0);
    for (int i = 0; i < m; ++i) {
      if (ahead + i < m) rank.f(0);
      rank.b(0);
      if (i >= depth * r) rank.w();
    }
    rank.all_w();
  }
  return s;
}

}  // namespace

Schedule zb_h1(int p, int m) { return zero_bubble("zb-h1", p, m, 1); }
Schedule zb_h2(int p, int m) { return zero_bubble("zb-h2", p, m, 2); }

}  // namespace quintet::schedule
