#include <algorithm>

#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {

// With F = B = W = 1, rank r starts at time r and is never idle. Chunk 0 runs down the ranks, chunk 1 runs
// back up.
Schedule zb_v(int p, int m) {
  const int written = std::max(m, 2 * p);
  Schedule s = blank("zb-v", p, 2, m, Placement::VShape);
  s.splits_backward = true;
  for (int r = 0; r < p; ++r) {
    RankWriter rank(s.ranks[r]);
    // Forwards only, until the first micro-batch has returned to this rank.
    for (int i = 0; i < 2 * (p - r) - 1; ++i) rank.f(0);
    for (int i = 0; i < r; ++i) {
      rank.f(1);
      rank.f(0);
    }
    // Backwards of chunk 1 only: those of chunk 0 have not arrived yet.
    for (int i = 0; i < p - r; ++i) {
      rank.f(1);
      rank.b(1);
      rank.w();
    }
    while (rank.forwards(1) < written) {
      if (rank.forwards(0) < written) rank.f(0);
      rank.b(0);
      rank.w();
      rank.f(1);
      rank.b(1);
      rank.w();
    }
    // The last backwards run through the ranks in sequence; W are deferred to the end, where they fill the
    // bubble.
    for (int i = 0; i < r; ++i) {
      rank.b(0);
      rank.b(1);
    }
    while (rank.backwards(0) < written) {
      rank.b(0);
      rank.w();
    }
    rank.all_w();
  }
  keep_micro_batches(s, m);
  promise(s, 2 * p);
  return s;
}

}  // namespace quintet::schedule
