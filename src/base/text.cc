#include "base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace quintet::base {

std::string human_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double size = std::abs(static_cast<double>(bytes));
  if (size < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would print as "1024.0", so the next unit starts where rounding does.
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_duration(int64_t ns) {
  if (ns < 0) {
    // Through unsigned, because the smallest value has no positive counterpart.
    const uint64_t size = 0 - static_cast<uint64_t>(ns);
    return fmt::format("-{}", human_duration(static_cast<int64_t>(std::min<uint64_t>(size, INT64_MAX))));
  }
  const double value = static_cast<double>(ns);
  if (ns < 1'000) return fmt::format("{} ns", ns);
  if (value < 999'950) return fmt::format("{:.1f} us", value * 1e-3);
  if (value < 999'950'000) return fmt::format("{:.1f} ms", value * 1e-6);
  if (value < 59'950'000'000) return fmt::format("{:.1f} s", value * 1e-9);
  const int64_t seconds = ns / 1'000'000'000 + (ns % 1'000'000'000 >= 500'000'000);
  if (seconds < 3600) return fmt::format("{}m {:02}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h {:02}m", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{}d {:02}h", seconds / 86400, seconds % 86400 / 3600);
}

std::string thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string human_count(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  static constexpr std::array kUnits = {"", "k", "M", "B", "T"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  if (unit == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  const double size = std::abs(value);
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  // Texts of such different lengths are no misspelling of each other, whatever they contain.
  constexpr size_t kFar = 64;
  const size_t apart = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (apart > kFar) return static_cast<int>(std::min(apart, size_t{1} << 30));
  // Three rows of the table: the current one, the previous one, and the one before that for swaps of
  // neighbours.
  std::vector<int> older(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    older = last, last = row;
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], older[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> candidates) {
  int best = std::max<int>(1, static_cast<int>(word.size() / 3)) + 1;
  std::optional<std::string> found;
  const std::string lower = lower_case(word);
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(lower, lower_case(candidate));
    if (distance < best) best = distance, found = candidate;
  }
  return found;
}

}  // namespace quintet::base
