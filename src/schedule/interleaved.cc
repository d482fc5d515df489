#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "schedule/draft.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

// Sizes of groups: `group`, and what is left in a last, smaller one. With fewer micro-batches than stages
// that one would leave the stages waiting for each other at every chunk: it is spread over the others.
std::vector<int> group_sizes(int p, int m, int group) {
  const int whole = m / group, rest = m % group;
  std::vector<int> sizes(static_cast<size_t>(whole), group);
  if (rest >= p || whole == 0) {
    if (rest > 0) sizes.push_back(rest);
  } else {
    for (int i = 0; i < whole; ++i)
      sizes[static_cast<size_t>(i)] += rest / whole + (i < rest % whole ? 1 : 0);
  }
  return sizes;
}

// The forward order of (chunk, micro-batch); backward is the same with the chunks reversed.
std::vector<std::pair<int, int>> visits(int chunks, const std::vector<int>& groups) {
  std::vector<std::pair<int, int>> order;
  int first = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int micro = first; micro < first + size; ++micro) order.emplace_back(chunk, micro);
    first += size;
  }
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
  const std::vector<int> groups = group_sizes(p, m, group);
  const int largest = *std::max_element(groups.begin(), groups.end());
  const std::vector<std::pair<int, int>> order = visits(chunks, groups);
  const int total = chunks * m;
  for (int r = 0; r < p; ++r) {
    const int ahead =
        chunks == 1 ? std::min(total, p - r - 1) : std::min(total, 2 * (p - r - 1) + (chunks - 1) * largest);
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
