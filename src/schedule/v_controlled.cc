// V-Half and V-Min ("Pipeline Parallelism with Controllable Memory"). Both follow a repeating pattern: every
// micro-batch takes the same path, six time units after the previous one, with the offsets of the path's four
// passes chosen so that no two share a slot on a rank. The time the path spends on a rank determines the
// memory.
//
// The pattern leaves slots empty at the start and the end. Here its times serve only as priorities, and its
// memory only as a bound, for a list scheduler with unit costs: that preserves the steady state and closes
// the gaps before and after it.
#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "base/error.h"
#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

constexpr int kPeriod = 6;  // F, B and W of two chunks
enum Pass { F0, F1, B1, B0 };
using Offsets = std::array<int, 4>;  // by Pass, of micro-batch 0 on one rank

Offsets half_offsets(int p, int r) {
  const int gap = p % 2 == 0 ? 3 : 0;  // for even p, chunk 1's F and B would share a slot
  return {2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r};
}

Offsets min_offsets(int p, int r) {
  const int gap = p % 3 == 0 ? 2 : 0;  // as above, for p divisible by 3
  return {r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p - 1 + gap - r};
}

// The most activations of each chunk, and of both, that the repeating pattern holds on a rank when W fill the
// empty slots in the order of their B.
struct Quota {
  std::array<int, 2> chunk = {0, 0};
  int both = 0;
};

Quota quota_of(const Offsets& offsets) {
  const int periods = offsets[B0] / kPeriod + 3;  // the number held is constant by then
  std::vector<int> slot(offsets[B0] + kPeriod * periods + 1, -1);
  for (int pass = 0; pass < 4; ++pass)
    for (int i = 0; i < periods; ++i) slot[offsets[pass] + kPeriod * i] = pass;
  Quota peak;
  std::array<int, 2> held = {0, 0};
  std::deque<int> waiting;
  for (const int pass : slot) {
    if (pass == F0 || pass == F1) {
      ++held[pass];
      peak.chunk[pass] = std::max(peak.chunk[pass], held[pass]);
      peak.both = std::max(peak.both, held[0] + held[1]);
    } else if (pass == B1 || pass == B0) {
      waiting.push_back(pass == B1 ? 1 : 0);
    } else if (!waiting.empty()) {
      --held[waiting.front()];
      waiting.pop_front();
    }
  }
  return peak;
}

// One rank of the list scheduler. `done[pass]` counts micro-batches whose pass ended in an earlier time unit.
struct Rank {
  Offsets offsets;
  Quota quota;
  std::array<int, 4> begun = {0, 0, 0, 0};
  std::array<int, 4> done = {0, 0, 0, 0};
  std::array<int, 2> held = {0, 0};
};

// Number of micro-batches of a pass that the previous ranks on the path have finished.
int arrived(const std::vector<Rank>& ranks, int r, int pass, int m) {
  const int last = static_cast<int>(ranks.size()) - 1;
  switch (pass) {
    case F0:
      return r == 0 ? m : ranks[r - 1].done[F0];
    case F1:
      return r == last ? ranks[r].done[F0] : ranks[r + 1].done[F1];
    case B1:
      return std::min(ranks[r].done[F1], r == 0 ? m : ranks[r - 1].done[B1]);
    default:
      return std::min(ranks[r].done[F0], r == last ? ranks[r].done[B1] : ranks[r + 1].done[B0]);
  }
}

// The ready pass with the highest priority in the pattern, or -1.
int choose(const std::vector<Rank>& ranks, int r, int m, int most) {
  const Rank& rank = ranks[r];
  int best = -1, best_time = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const int micro = rank.begun[pass];
    if (micro >= m || micro >= arrived(ranks, r, pass, m)) continue;
    const bool forward = pass == F0 || pass == F1;
    if (forward && (rank.held[pass] >= rank.quota.chunk[pass] || rank.held[0] + rank.held[1] >= most))
      continue;
    const int time = rank.offsets[pass] + kPeriod * micro;
    if (best < 0 || time < best_time) {
      best = pass;
      best_time = time;
    }
  }
  return best;
}

Schedule from_pattern(const char* name, int p, int m, Offsets (*offsets)(int p, int r)) {
  Schedule s = blank(name, p, 2, m, Placement::VShape);
  s.splits_backward = true;
  std::vector<Rank> ranks(p);
  std::vector<RankWriter> writers;
  int most = 0;
  for (int r = 0; r < p; ++r) {
    ranks[r].offsets = offsets(p, r);
    ranks[r].quota = quota_of(ranks[r].offsets);
    most = std::max(most, ranks[r].quota.both);
    writers.emplace_back(s.ranks[r]);
  }
  const size_t all = static_cast<size_t>(kPeriod) * m;
  for (bool more = true; more;) {
    more = false;
    bool moved = false;
    for (int r = 0; r < p; ++r) {
      Rank& rank = ranks[r];
      const size_t before = s.ranks[r].size();
      const int pass = choose(ranks, r, m, most);
      if (pass == F0 || pass == F1) {
        writers[r].f(pass);
        ++rank.held[pass];
      } else if (pass == B1 || pass == B0) {
        writers[r].b(pass == B1 ? 1 : 0);
      } else {
        writers[r].w();
        if (s.ranks[r].size() > before) --rank.held[s.ranks[r].back().chunk];
      }
      if (pass >= 0) ++rank.begun[pass];
      moved |= s.ranks[r].size() > before;
      more |= s.ranks[r].size() < all;
    }
    QUINTET_CHECK(moved || !more, "schedule {} of {} stages and {} micro-batches stalls", name, p, m);
    for (Rank& rank : ranks) rank.done = rank.begun;
  }
  promise(s, most);
  return s;
}

}  // namespace

Schedule v_half(int p, int m) { return from_pattern("v-half", p, m, half_offsets); }
Schedule v_min(int p, int m) { return from_pattern("v-min", p, m, min_offsets); }

}  // namespace quintet::schedule
