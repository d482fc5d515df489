#include "config/joint_nearest.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "config/schema.h"

namespace quintet::config {
namespace {

constexpr int64_t kReach = 1024;

// Parses "4" or "4 or 8"; empty when the text contains anything else.
std::vector<int64_t> numbers_in(std::string_view text) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t middle = std::min(text.find(" or "), text.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + middle, number);
    if (error != std::errc() || end != text.data() + middle) return {};
    numbers.push_back(number);
    if (middle == text.size()) return numbers;
    text.remove_prefix(middle + 4);
  }
}

// Finds the integer field of a key, and its limits.
struct Field {
  const std::string& wanted;
  int64_t* value = nullptr;
  Limits limits = {};
  void operator()(const char* key, int64_t& field, const Limits& l) {
    if (wanted == key) value = &field, limits = l;
  }
  template <class T, class... L>
  void operator()(const char*, T&, const L&...) {}
};

// Tries values for one key of a recipe.
class Trial {
 public:
  Trial(const Recipe& recipe, const std::vector<const Rule*>& rules, const std::string& key)
      : recipe_(recipe), rules_(rules), key_(key), field_{key_} {
    for_each_key(recipe_, field_);
    if (field_.value != nullptr) given_ = *field_.value;
  }

  bool is_number() const { return field_.value != nullptr; }
  bool legal(int64_t candidate) {
    if (!field_.limits.contains(static_cast<double>(candidate))) return false;
    *field_.value = candidate;
    Report report;
    for (const Rule* rule : rules_) rule->check(recipe_, Fail{*rule, report});
    return std::none_of(report.problems().begin(), report.problems().end(),
                        [&](const Problem& p) { return p.key == key_; });
  }
  std::string nearest() {
    std::string text;
    for (const int64_t direction : {-1, 1})
      for (int64_t distance = 1; distance <= kReach; ++distance)
        if (const int64_t candidate = given_ + direction * distance; legal(candidate)) {
          text += fmt::format("{}{}", text.empty() ? "" : " or ", candidate);
          break;
        }
    return text;
  }

 private:
  Recipe recipe_;
  const std::vector<const Rule*>& rules_;
  const std::string key_;
  Field field_;
  int64_t given_ = 0;
};

}  // namespace

void suggest_jointly(const Recipe& recipe, const std::vector<const Rule*>& rules,
                     std::vector<Problem>& problems) {
  std::map<std::string, std::vector<Problem*>> by_key;
  for (Problem& p : problems)
    if (std::any_of(rules.begin(), rules.end(), [&](const Rule* r) { return p.name == r->name; }) &&
        !numbers_in(p.nearest).empty())
      by_key[p.key].push_back(&p);
  for (auto& [key, list] : by_key) {
    // Batch sizes are derived from each other: when one changes, the others are stale.
    if (key.starts_with("batch.")) continue;
    Trial trial(recipe, rules, key);
    if (!trial.is_number()) continue;
    const bool all_good = std::all_of(list.begin(), list.end(), [&](const Problem* p) {
      const std::vector<int64_t> offered = numbers_in(p->nearest);
      return std::all_of(offered.begin(), offered.end(), [&](int64_t n) { return trial.legal(n); });
    });
    if (all_good) continue;
    if (const std::string offer = trial.nearest(); !offer.empty())
      for (Problem* p : list) p->nearest = offer;
  }
}

}  // namespace quintet::config
