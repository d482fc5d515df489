#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {

Schedule gpipe(int p, int m) {
  Schedule s = blank("gpipe", p, 1, m, Placement::Looped);
  s.max_in_flight.assign(p, m);
  for (std::vector<Action>& actions : s.ranks) {
    RankWriter rank(actions);
    for (int i = 0; i < m; ++i) rank.f(0);
    for (int i = 0; i < m; ++i) rank.bw(0);
  }
  return s;
}

}  // namespace quintet::schedule
