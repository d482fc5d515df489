#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

// The forward order of (chunk, micro-batch); backward is the same with the chunks reversed.
std::vector<std::pair<int, int>> visits(int chunks, int m, int group) {
  std::vector<std::pair<int, int>> order;
  for (int first = 0; first < m; first += group)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int micro = first; micro < std::min(m, first + group); ++micro) order.emplace_back(chunk, micro);
  return order;
}

}  // namespace

Schedule interleaved(int p, int chunks, int m, int group) {
  Schedule s = blank("interleaved", p, chunks, m, Placement::Looped);
  if (group == 0) group = p;
  if (group < p)
    base::fail_user(
        "schedule interleaved: a group of {} micro-batches is smaller than the {} stages, so the first stage "
        "would wait for the last at every chunk; use {} or more",
        group, p, p);
  const int rest = m % group;
  if (chunks > 1 && rest != 0 && rest < p)
    base::fail_user(
        "schedule interleaved: {} micro-batches in groups of {} leave a last group of {}, fewer than the {} "
        "stages; use {}{} micro-batches",
        m, group, rest, p, m > rest ? fmt::format("{} or ", m - rest) : "", m - rest + p);
  const std::vector<std::pair<int, int>> order = visits(chunks, m, group);
  const int total = chunks * m;
  for (int r = 0; r < p; ++r) {
    const int ahead =
        chunks == 1 ? std::min(total, p - r - 1) : std::min(total, 2 * (p - r - 1) + (chunks - 1) * group);
    s.max_in_flight.push_back(std::min(total, ahead + 1));
    std::vector<Action>& actions = s.ranks[r];
    const auto forward = [&](int i) { actions.push_back({Kind::F, order[i].first, order[i].second}); };
    for (int i = 0; i < ahead; ++i) forward(i);
    for (int i = 0; i < total; ++i) {
      if (ahead + i < total) forward(ahead + i);
      actions.push_back({Kind::BW, chunks - 1 - order[i].first, order[i].second});
    }
  }
  return s;
}

}  // namespace quintet::schedule
