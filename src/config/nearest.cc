#include "config/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace quintet::config {
namespace {

std::string_view last_part(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.size() - last_part(key).size());  // with its dot
}

// The edits by which a word may be misspelt.
int64_t reach(std::string_view word) {
  return word.size() < 4 ? 1 : std::max<int64_t>(2, static_cast<int64_t>(word.size()) / 3);
}

std::string either(int64_t low, int64_t high) {
  return low == high ? fmt::format("{}", low) : fmt::format("{} or {}", low, high);
}

}  // namespace

std::string nearest_key(std::string_view unknown, const std::vector<std::string>& known) {
  const std::string key = base::lower_case(unknown);  // all keys are lower case
  std::string best;
  int64_t best_distance = std::numeric_limits<int64_t>::max();
  for (const std::string& candidate : known) {
    const std::string_view mine = last_part(key), theirs = last_part(candidate);
    const int64_t name = base::edit_distance(mine, theirs);
    const int64_t section = base::edit_distance(section_of(key), section_of(candidate));
    int64_t distance = std::numeric_limits<int64_t>::max();
    if (name <= reach(mine) && section <= reach(section_of(key))) distance = name + section;
    // The right name in the wrong section counts as two edits, so that a misspelt section is preferred. A
    // name without a section may be misspelt as well.
    if (name == 0 || (mine.size() == key.size() && mine.size() >= 4 && name <= reach(mine)))
      distance = std::min(distance, name + 2);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string nearest_divisors(int64_t n, int64_t v) {
  v = std::min(n, v);
  int64_t low = 1, high = n;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    for (const int64_t divisor : {d, n / d}) {
      if (divisor <= v) low = std::max(low, divisor);
      if (divisor >= v) high = std::min(high, divisor);
    }
  }
  return either(low, high);
}

std::string nearest_multiples(int64_t m, int64_t v) {
  const int64_t high = (v + m - 1) / m * m;
  return either(std::max(m, v / m * m), std::max(m, high));
}

}  // namespace quintet::config
