#include "config/stage_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace quintet::config {
namespace {

constexpr size_t kMostLetters = size_t{1} << 16;  // after repetition
constexpr int kDeepest = 16;

struct Expansion {
  std::string_view text;
  size_t at = 0;
  std::string error;

  // What follows up to the end or a closing bracket, without repetitions.
  std::string expand(int depth) {
    std::string out;
    while (at < text.size() && error.empty()) {
      const char c = text[at];
      if (c == ')') {
        if (depth == 0) error = fmt::format("has \")\" at character {} without \"(\"", at + 1);
        return out;
      }
      std::string unit;
      ++at;
      if (c == '(') {
        if (depth == kDeepest) {
          error = fmt::format("has more than {} brackets inside each other", kDeepest);
          return out;
        }
        unit = expand(depth + 1);
        if (!error.empty()) return out;
        if (at == text.size()) {
          error = "has \"(\" without \")\"";
          return out;
        }
        ++at;
      } else if (c == 'E' || c == 't' || c == 'm' || c == 'L' || c == '|') {
        unit = c;
      } else if (c != ',' && c != ' ') {
        error = fmt::format("has \"{}\" at character {}; known: E, t, m, L, |, (...), *n and commas", c, at);
        return out;
      }
      const size_t times = repetitions();
      if (unit.size() * times + out.size() > kMostLetters)
        error = fmt::format("has more than {} letters after repetition", kMostLetters);
      for (size_t i = 0; i < times && error.empty(); ++i) out += unit;
    }
    return out;
  }

 private:
  size_t repetitions() {
    if (at == text.size() || text[at] != '*') return 1;
    size_t n = 0;
    const size_t first = ++at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) && n <= kMostLetters)
      n = 10 * n + static_cast<size_t>(text[at++] - '0');
    if (at == first || n == 0)
      error = fmt::format("has \"*\" at character {} without a number above 0", first);
    return n;
  }
};

}  // namespace

StageLayout parse_stage_layout(std::string_view text) {
  Expansion expansion{text};
  const std::string letters = expansion.expand(0);
  StageLayout out{.stages = {}, .error = expansion.error};
  if (!out.error.empty()) return out;
  std::vector<std::string> stages(1);
  for (const char c : letters)
    if (c == '|')
      stages.emplace_back();
    else
      stages.back() += c;
  const auto count = [&](char c) { return std::count(letters.begin(), letters.end(), c); };
  if (count('E') != 1 || !stages.front().starts_with('E'))
    out.error = "must have E once, at the start of the first stage: the embedding runs there";
  else if (count('L') != 1 || !stages.back().ends_with('L'))
    out.error = "must have L once, at the end of the last stage: the head runs there";
  else if (const size_t m = letters.find('m'); letters.find('t', m) < letters.size())
    out.error = "must have m after the last t: multi-token prediction reads the result of all blocks";
  for (const std::string& stage : stages)
    out.stages.push_back(
        std::count_if(stage.begin(), stage.end(), [](char c) { return c == 't' || c == 'm'; }));
  return out;
}

}  // namespace quintet::config
