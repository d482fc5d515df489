#include "config/sound_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "config/key_docs.h"

namespace quintet::config {
namespace {

constexpr const char* kLimitsRule = "numbers are within limits";
constexpr int64_t kReach = 256;     // how far from the given number others are tried
constexpr int kMaxAttempts = 2000;  // of one recipe, which bounds the time of a hopeless one
constexpr size_t kMaxChanges = 4;   // that one suggestion names

// The value at the start of a suggestion, as TOML: "4" of "4 or 8", "\"none\"". Empty when it is in words.
std::string_view first_value(std::string_view text) {
  if (text.starts_with('"')) return text.substr(0, text.find('"', 1) + 1);
  if (text.starts_with("[{")) return {};
  if (text.starts_with('[')) return text.substr(0, text.find(']') + 1);
  for (const std::string_view word : {"true", "false"})
    if (text.starts_with(word)) return word;
  const size_t end = std::min(text.find_first_not_of("-+.e0123456789"), text.size());
  const std::string_view rest = text.substr(end);
  const bool whole =
      rest.empty() || rest.starts_with(',') || rest.starts_with(" or ") || rest.starts_with(" (");
  return whole ? text.substr(0, end) : std::string_view();
}

// One value, or two: "4 or 8".
std::vector<std::string> values_in(std::string_view text) {
  const std::string_view first = first_value(text);
  if (first.empty()) return {};
  std::vector<std::string> values = {std::string(first)};
  const std::string_view rest = text.substr(first.size());
  if (rest.starts_with(" or "))
    if (const std::string_view other = rest.substr(4); first_value(other) == other)
      values.emplace_back(other);
  return values;
}

std::optional<int64_t> integer_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

using Name = std::pair<std::string, std::string>;                  // of a problem: rule and key
using Changes = std::vector<std::pair<std::string, std::string>>;  // keys and values

class Advice {
 public:
  Advice(const std::vector<Problem>& problems, const Attempt& attempt) : attempt_(attempt) {
    for (const Problem& p : problems) known_.emplace(p.name, p.key);
  }

  // What to write instead of problem.nearest.
  std::string sound(const Problem& problem) {
    const std::vector<std::string> offered = values_in(problem.nearest);
    std::string good;
    size_t kept = 0;
    for (const std::string& value : offered) {
      if (!repairs(problem, {{problem.key, value}})) continue;
      good += (good.empty() ? "" : " or ") + value;
      ++kept;
    }
    if (kept == offered.size()) return problem.nearest;
    if (kept > 0) return good;
    if (const auto number = integer_in(offered[0]))
      if (std::string near = nearest_numbers(problem, *number); !near.empty()) return near;
    for (const std::string& value : offered)
      if (std::string joint = with_others(problem, value); !joint.empty()) return joint;
    return {};
  }

 private:
  // The problems that a recipe with these changes has and the given one has not, and all of the same key.
  std::vector<Problem> left_by(const Problem& problem, const Changes& changes) {
    if (attempts_++ >= kMaxAttempts) return {problem};
    std::vector<std::string> overrides;
    for (const auto& [key, value] : changes) overrides.push_back(key + "=" + value);
    std::vector<Problem> left = attempt_(overrides);
    // Other rules that reject the same key must be satisfied as well.
    std::erase_if(left, [&](const Problem& p) {
      return p.key != problem.key && known_.contains({p.name, p.key});
    });
    return left;
  }
  bool repairs(const Problem& problem, const Changes& changes) { return left_by(problem, changes).empty(); }

  std::string nearest_numbers(const Problem& problem, int64_t from) {
    std::string text;
    for (const int64_t direction : {-1, 1})
      for (int64_t distance = 1; distance <= kReach; ++distance) {
        const int64_t candidate = from + direction * distance;
        if (candidate < 0) break;
        if (!repairs(problem, {{problem.key, std::to_string(candidate)}})) continue;
        text += fmt::format("{}{}", text.empty() ? "" : " or ", candidate);
        break;
      }
    // Far from the number: half of it, and so on.
    for (int64_t candidate = from / 2; text.empty() && candidate > 0; candidate /= 2)
      if (repairs(problem, {{problem.key, std::to_string(candidate)}})) text = std::to_string(candidate);
    return text;
  }

  // Follows the suggestions of what the value breaks.
  std::string with_others(const Problem& problem, const std::string& value) {
    Changes changes = {{problem.key, value}};
    while (true) {
      const std::vector<Problem> left = left_by(problem, changes);
      if (left.empty()) break;
      if (changes.size() == kMaxChanges) return {};
      const Problem& next = left.front();
      const bool again = std::any_of(changes.begin(), changes.end(),
                                     [&](const auto& change) { return change.first == next.key; });
      const std::vector<std::string> values = values_in(next.nearest);
      if (again || values.empty()) return {};
      changes.emplace_back(next.key, values[0]);
    }
    std::string text = value;
    for (size_t i = 1; i < changes.size(); ++i)
      text += fmt::format(" {} {} = {}", i == 1 ? "with" : "and", changes[i].first, changes[i].second);
    return text;
  }

  const Attempt& attempt_;
  std::set<Name> known_;
  int attempts_ = 0;
};

// Whether the suggestion is a value that the whole key can be given, after a rule was broken.
bool is_value_of_its_key(const Problem& p) {
  for (const char* hiding :
       {"values have the type of their key", "every key is known", "this version supports the key"})
    if (p.name == hiding) return false;
  const KeyFacts* key = find_key(p.key);
  if (key == nullptr || values_in(p.nearest).empty()) return false;  // an entry of a list, or words
  const bool is_list = key->type.starts_with("list");
  return is_list == p.nearest.starts_with('[');
}

}  // namespace

void make_advice_sound(std::vector<Problem>& problems, const Attempt& attempt) {
  Advice advice(problems, attempt);
  for (Problem& p : problems) {
    if (!is_value_of_its_key(p)) continue;
    std::string sound = advice.sound(p);
    // A value out of bounds hides from the other rules what else is wrong: the bound stays where nothing
    // better is found.
    if (!sound.empty() || p.name != kLimitsRule) p.nearest = std::move(sound);
  }
}

}  // namespace quintet::config
