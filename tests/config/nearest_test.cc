#include "config/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "config/bad_recipes.h"
#include "config/codes.h"
#include "config/key_docs.h"
#include "config/support.h"

namespace quintet::config {
namespace {

TEST(Nearest, CaseIsIgnored) {
  EXPECT_EQ(nearest_key("Run.DEVICE", {"run.steps", "run.device"}), "run.device");
  EXPECT_EQ(nearest_key("Data.Steps", {"run.steps", "run.seed"}), "run.steps");
}

TEST(Nearest, KeysAreFoundInOtherSectionsToo) {
  EXPECT_EQ(nearest_key("data.steps", {"run.steps", "run.seed"}), "run.steps");
  EXPECT_EQ(nearest_key("steps", {"run.steps", "run.seed"}), "run.steps");
  EXPECT_EQ(nearest_key("run.stesp", {"run.steps", "run.seed"}), "run.steps");
}

// What is given under another name is not reported as missing too.
TEST(Nearest, AMisspeltSectionIsNamedOnce) {
  const auto messages = [](const std::string& text) {
    std::string all;
    for (const Problem& p : problems_with({}, text)) all += to_string(p) + "\n";
    return all;
  };
  std::string text = kGood;
  text.replace(text.find("[model]"), 7, "[modell]");
  EXPECT_NE(messages(text).find("modell.preset (line 4): is not a recipe key; nearest: model.preset"),
            std::string::npos);
  text = "name = \"a\"\n[modell]\nlayers = 2\n";
  EXPECT_NE(messages(text).find("nearest: model.layers"), std::string::npos);
  EXPECT_EQ(messages(text).find("model.layers: is required"), std::string::npos);
  const std::string empty = messages(std::string(kGood) + "\n[modell]\n");
  EXPECT_NE(empty.find("modell (line"), std::string::npos);
  EXPECT_NE(empty.find("nearest: [model]"), std::string::npos);
  const std::string value = messages("name = \"a\"\nmodel = 3\n");
  EXPECT_NE(value.find("must be a section"), std::string::npos);
  EXPECT_EQ(value.find("model.layers"), std::string::npos);
}

TEST(Nearest, NumbersOutOfBoundsGetOneThatPassesAllRules) {
  const auto nearest = [](const std::string& set) {
    const std::vector<Problem> problems = problems_with({set});
    return problems.empty() ? std::string() : problems[0].nearest;
  };
  EXPECT_EQ(nearest("parallel.tp=1000000"), "4") << "not 65536, which the heads refuse";
  EXPECT_EQ(nearest("optimizer.eps=0"), "1e-8");
  EXPECT_EQ(nearest("optimizer.betas=[nan, 0.9]"), "[0.9, 0.95]");
  EXPECT_NE(problems_with({"run.steps=9223372036854775807"})[0].rule.find("got 9223372036854775807"),
            std::string::npos);
}

TEST(Nearest, DivisorsAndMultiplesOnBothSides) {
  EXPECT_EQ(nearest_divisors(12, 5), "4 or 6");
  EXPECT_EQ(nearest_divisors(12, 4), "4");
  EXPECT_EQ(nearest_divisors(12, 50), "12");
  EXPECT_EQ(nearest_divisors(7, 3), "1 or 7");
  EXPECT_EQ(nearest_multiples(4, 10), "8 or 12");
  EXPECT_EQ(nearest_multiples(4, 3), "4");
  EXPECT_EQ(nearest_multiples(4, 8), "8");
}

// Three rules reject parallel.tp = 7; each alone would suggest other values.
TEST(Nearest, TheSuggestedNumberSatisfiesAllRules) {
  const std::vector<std::string> model = {"model.heads=12", "model.kv_heads=4", "model.ffn=40",
                                          "model.head_dim=8"};
  std::vector<std::string> broken = model;
  broken.push_back("parallel.tp=7");
  const std::vector<Problem> problems = problems_with(broken);
  ASSERT_EQ(problems.size(), 3u);
  for (const Problem& p : problems)
    EXPECT_EQ(p.nearest, "4") << to_string(p);  // 6 and 8 violate one rule each
  std::vector<std::string> fixed = model;
  fixed.push_back("parallel.tp=4");
  EXPECT_TRUE(problems_with(fixed).empty());
}

// ---- advice over random recipes

// The value that a suggestion proposes for its own key, as TOML; empty when it is in words.
std::string proposed(const Problem& p) {
  const std::string& near = p.nearest;
  if (near.empty() || near.starts_with("[{")) return {};
  if (near[0] == '"') return near.substr(0, near.find('"', 1) + 1);
  if (near.starts_with("[")) return near.substr(0, near.find(']') + 1);
  for (const char* word : {"true", "false"})
    if (near.starts_with(word)) return word;
  const size_t end = std::min(near.find_first_not_of("-+.e0123456789"), near.size());
  // "8 or 12", "8, or accumulation 2", "16"; but not "1024 samples" or "16 with accumulation 2".
  const bool whole = end == near.size() || near[end] == ',' || near.substr(end).starts_with(" or ") ||
                     near.substr(end).starts_with(" (");
  return end > 0 && whole ? near.substr(0, end) : std::string();
}

// Follows suggestions until the recipe is legal or one is in words. Each must repair the rule that made it,
// and none may lead back to values that were tried.
TEST(Nearest, AdviceIsAcceptedAndNeverLoops) {
  std::vector<const KeyFacts*> keys;
  for (const KeyFacts& k : recipe_keys())
    if (k.type == "integer" || k.type == "number" || k.type == "true or false" || !k.words.empty())
      keys.push_back(&k);
  const std::vector<std::string> numbers = {"0", "1",  "2",  "3",  "4",  "5",  "6",   "7",    "8",
                                            "9", "11", "12", "16", "33", "64", "100", "1000", "-3"};
  std::mt19937_64 random(20261116);
  const auto draw = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::set<std::string> advised;
  std::map<std::string, std::string> wrong;  // an example by rule
  for (int trial = 0; trial < 2000; ++trial) {
    std::map<std::string, std::string> values;  // by key
    if (draw(3) == 0) values["model.preset"] = draw(2) == 0 ? "'tiny-moe'" : "'gpt2-tiny'";
    for (size_t n = 1 + draw(4); n > 0; --n) {
      const KeyFacts& k = *keys[draw(keys.size())];
      values[k.key] = !k.words.empty()            ? "'" + k.words[draw(k.words.size())] + "'"
                      : k.type == "true or false" ? (draw(2) == 0 ? "true" : "false")
                                                  : numbers[draw(numbers.size())];
    }
    std::set<std::map<std::string, std::string>> tried;
    std::string last;  // rule that made the last change
    while (true) {
      std::vector<std::string> sets;
      for (const auto& [key, value] : values) sets.push_back(key + "=" + value);
      const std::string state = fmt::format("--set {}", fmt::join(sets, " --set "));
      if (!tried.insert(values).second) {
        wrong.emplace(last, "advice leads back to " + state);
        break;
      }
      const std::vector<Problem> problems = problems_with(sets, std::string(example_recipe()));
      const auto next = std::find_if(problems.begin(), problems.end(), [](const Problem& p) {
        return find_key(p.key) != nullptr && !proposed(p).empty();
      });
      if (next == problems.end()) break;
      last = next->name;
      advised.insert(last);
      values[next->key] = proposed(*next);
      sets.push_back(next->key + "=" + values[next->key]);
      for (const Problem& p : problems_with(sets, std::string(example_recipe())))
        if (p.name == next->name && p.key == next->key)
          wrong.emplace(last, fmt::format("{}\n{}\nbut then\n{}", state, to_string(*next), to_string(p)));
    }
  }
  for (const auto& [rule, text] : wrong) ADD_FAILURE() << rule << ":\n" << text;
  EXPECT_GE(advised.size(), 30u);
}

// ---- advice on one recipe per rule

// What a suggestion proposes, as sets of overrides: one value, one of two numbers ("8 or 12"), or a value
// with others ("3 with parallel.tp = 1 and model.heads = 6").
// None when it is in words, or is about an entry of a list.
std::vector<std::vector<std::string>> proposals(const Problem& p) {
  static const std::regex with_others(R"((\S+) with ([a-z_.]+ = \S+)( and [a-z_.]+ = \S+)*)");
  if (std::regex_match(p.nearest, with_others)) {
    static const std::regex change(R"(([a-z_.]+) = (\S+))");
    std::vector<std::string> sets = {p.key + "=" + p.nearest.substr(0, p.nearest.find(' '))};
    for (std::sregex_iterator at(p.nearest.begin(), p.nearest.end(), change), end; at != end; ++at)
      sets.push_back((*at)[1].str() + "=" + (*at)[2].str());
    return {sets};
  }
  const std::string value = proposed(p);
  if (value.empty() || p.key == "batch.ramp") return {};
  std::vector<std::vector<std::string>> sets = {{p.key + "=" + value}};
  const size_t other = value.size() + std::string(" or ").size();
  if (p.nearest.starts_with(value + " or ") &&
      p.nearest.find_first_not_of("0123456789", other) == std::string::npos)
    sets.push_back({p.key + "=" + p.nearest.substr(other)});
  return sets;
}

// The table violates every rule. Whoever follows a suggestion has a legal recipe; only limits and types are
// checked for one key alone.
TEST(Nearest, SuggestionsAreAcceptedByAllRules) {
  std::set<std::string> followed;
  for (const Bad& bad : bad_recipes())
    for (const Problem& p : problems_with(bad.overrides)) {
      if (p.name == "numbers are within limits" || p.name == "values have the type of their key" ||
          find_key(p.key) == nullptr)
        continue;
      for (const std::vector<std::string>& sets : proposals(p)) {
        followed.insert(p.name);
        std::vector<std::string> mended = bad.overrides;
        mended.insert(mended.end(), sets.begin(), sets.end());
        for (const Problem& left : problems_with(mended))
          ADD_FAILURE() << fmt::format("--set {}\n{}\nbut with {}:\n{}", fmt::join(bad.overrides, " --set "),
                                       to_string(p), fmt::join(sets, ", "), to_string(left));
      }
    }
  EXPECT_GE(followed.size(), 40u);
}

// Sizes with digits too many: whoever follows one suggestion after the other has a legal recipe soon.
TEST(Nearest, AdviceOnHugeSizesLeadsToALegalRecipe) {
  const std::map<std::string, std::vector<std::string>> sizes = {
      {"batch.global", {"8", "11", "300000", "4194304", "100000000", "1073741824"}},
      {"data.seq_len", {"64", "100", "4096", "70000000", "134217728", "1000000000", "1073741824"}},
      {"batch.micro", {"1", "3", "100000", "8388608"}},
      {"batch.accumulation", {"2", "5000", "1000000"}},
      {"parallel.dp_shard", {"1", "2", "3"}},
      {"parallel.cp", {"1", "2"}}};
  std::string text = kGood;
  text.replace(text.find("micro = 2\n"), 10, "");  // derived unless it is given
  const auto slip = problems_with({"batch.global=8388608", "data.seq_len=64"}, text);
  ASSERT_EQ(slip.size(), 1u);
  EXPECT_EQ(slip[0].nearest, "131072 (8,388,608 tokens)");
  std::mt19937_64 random(20261119);
  int repaired = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> sets = {"parallel.tp=1", "parallel.sequence_parallel=false"};
    for (const auto& [key, values] : sizes)
      if (key == "batch.global" || random() % 2 == 0)
        sets.push_back(key + "=" + values[random() % values.size()]);
    const std::string given = fmt::format("--set {}", fmt::join(sets, " --set "));
    SCOPED_TRACE(given);
    bool followed = true;
    int changes = 0;
    std::vector<Problem> problems = problems_with(sets, text);
    for (; !problems.empty() && followed && changes < 5; ++changes) {
      followed = false;
      for (const Problem& p : problems)
        if (const auto proposed = proposals(p); !followed && !proposed.empty()) {
          sets.insert(sets.end(), proposed[0].begin(), proposed[0].end());
          followed = true;
        }
      problems = problems_with(sets, text);
    }
    repaired += changes > 0 && problems.empty();
    if (!problems.empty() && followed) ADD_FAILURE() << "after five suggestions: " << to_string(problems[0]);
    for (const Problem& p : problems) EXPECT_TRUE(proposals(p).empty() || followed) << to_string(p);
  }
  EXPECT_GE(repaired, 150);
}

// Random recipes break several rules at once: a suggestion may leave the other problems, and adds none.
TEST(Nearest, SuggestionsCauseNoOtherProblem) {
  const std::vector<std::string> keys = {
      "model.heads",       "model.kv_heads",  "model.embed",       "model.ffn",
      "parallel.tp",       "parallel.cp",     "parallel.pp",       "batch.global",
      "batch.micro",       "data.seq_len",    "model.layers",      "parallel.ep",
      "model.moe.experts", "model.moe.top_k", "parallel.dp_shard", "parallel.chunks"};
  std::mt19937_64 random(20261118);
  int followed = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<std::string> sets;
    if (random() % 3 == 0) sets.push_back("model.preset='tiny-moe'");
    for (int n = 0; n < 3; ++n)
      sets.push_back(fmt::format("{}={}", keys[random() % keys.size()], 1 + random() % 24));
    const std::vector<Problem> before = problems_with(sets);
    std::set<std::pair<std::string, std::string>> known;
    for (const Problem& p : before) known.emplace(p.name, p.key);
    for (const Problem& p : before) {
      if (p.name == "numbers are within limits" || p.name == "values have the type of their key" ||
          find_key(p.key) == nullptr)
        continue;
      for (const std::vector<std::string>& proposal : proposals(p)) {
        ++followed;
        std::vector<std::string> mended = sets;
        mended.insert(mended.end(), proposal.begin(), proposal.end());
        for (const Problem& left : problems_with(mended))
          if (!known.contains({left.name, left.key}) || (left.name == p.name && left.key == p.key))
            ADD_FAILURE() << fmt::format("--set {}\n{}\nbut with {}:\n{}", fmt::join(sets, " --set "),
                                         to_string(p), fmt::join(proposal, ", "), to_string(left));
      }
    }
  }
  EXPECT_GE(followed, 100);
}

}  // namespace
}  // namespace quintet::config
