#include <algorithm>

#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {

Schedule one_f_one_b(int p, int m) {
  Schedule s = blank("1f1b", p, 1, m, Placement::Looped);
  for (int r = 0; r < p; ++r) {
    const int ahead = std::min(m, p - r - 1);
    s.max_in_flight.push_back(std::min(m, p - r));
    RankWriter rank(s.ranks[r]);
    for (int i = 0; i < ahead; ++i) rank.f(0);
    for (int i = 0; i < m; ++i) {
      if (ahead + i < m) rank.f(0);
      rank.bw(0);
    }
  }
  return s;
}

}  // namespace quintet::schedule
