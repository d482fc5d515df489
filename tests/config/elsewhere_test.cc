// Suggestions know the words of other systems: those of docs/coming-from, read from its tables.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/file.h"
#include "config/elsewhere_table.h"
#include "config/key_docs.h"
#include "config/support.h"
#include "config/unsupported.h"
#include "support/folders.h"

namespace quintet::config {
namespace {

std::vector<std::string> spans_of(const std::string& cell) {
  static const std::regex kSpan("`([^`]+)`");
  std::vector<std::string> spans;
  for (std::sregex_iterator it(cell.begin(), cell.end(), kSpan), end; it != end; ++it)
    spans.push_back((*it)[1]);
  return spans;
}

// Keys of another system, and those of ours beside them. After "key: value" or "--option value", spans that
// are not of that form are further values.
std::map<std::string, std::set<std::string>> keys_beside(const std::string& page) {
  std::map<std::string, std::set<std::string>> beside;
  std::istringstream lines(base::read_file(test::source_dir() + "/docs/coming-from/" + page));
  static const std::regex kName("-*([a-z][a-z0-9_.-]*[a-z0-9])(\\.\\*)?");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    const size_t first = line.find(" | ", 2), second = line.find(" | ", first + 3);
    if (second == std::string::npos) continue;
    std::set<std::string> ours;
    std::string section;  // of the key before it: `precision.loss_scale_start`, `loss_scale_min`
    for (const std::string& span : spans_of(line.substr(first, second - first))) {
      std::string key = span.substr(0, span.find(" = "));
      if (key.find('.') == std::string::npos) key = section + key;
      if (find_key(key) != nullptr) ours.insert(key);
      section = key.substr(0, key.rfind('.') + 1);
    }
    if (ours.empty()) continue;
    const std::vector<std::string> spans = spans_of(line.substr(2, first - 2));
    const bool has_options =
        std::any_of(spans.begin(), spans.end(), [](const std::string& s) { return s.starts_with("--"); });
    const bool has_value = !spans.empty() && spans[0].find(": ") != std::string::npos;
    for (const std::string& span : spans) {
      const std::string theirs = span.substr(0, span.find_first_of(" :="));
      std::smatch name;
      if ((has_options && !span.starts_with("--")) || (has_value && span.find(": ") == std::string::npos) ||
          !std::regex_match(theirs, name, kName))
        continue;
      beside[name[1]].insert(ours.begin(), ours.end());
    }
  }
  return beside;
}

TEST(Elsewhere, EveryKeyOfThePagesLeadsToOneOfOursBesideIt) {
  size_t checked = 0;
  for (const char* page : {"axolotl.md", "deepspeed.md", "megatron.md", "torchtitan.md"}) {
    for (const auto& [theirs, ours] : keys_beside(page)) {
      std::string word = theirs;
      std::replace(word.begin(), word.end(), '-', '_');
      // Called the same, without a key here, or the name of a section of ours.
      if (find_key(word) != nullptr || !answer_elsewhere(word).empty() || word == "optimizer") continue;
      const std::vector<Problem> problems = problems_with({word + "=1"});
      const std::string near = problems.empty() ? "" : problems[0].nearest;
      EXPECT_TRUE(ours.contains(near))
          << page << ": " << theirs << " leads to '" << near << "', not to " << *ours.begin();
      ++checked;
    }
  }
  EXPECT_GE(checked, 180u);
}

TEST(Elsewhere, TablesNameWhatExists) {
  for (const KeyElsewhere& row : keys_elsewhere())
    EXPECT_NE(find_key(row.ours), nullptr) << row.theirs << " -> " << row.ours;
  for (const WordElsewhere& row : words_elsewhere()) {
    const bool is_prefix = row.key.ends_with('.');
    const KeyFacts* const key = find_key(is_prefix ? "precision.compute" : row.key);
    ASSERT_NE(key, nullptr) << row.key;
    if (!key->words.empty())
      EXPECT_NE(std::find(key->words.begin(), key->words.end(), row.ours), key->words.end()) << row.ours;
  }
}

TEST(Elsewhere, ValuesLeadToOurs) {
  const auto nearest = [](std::vector<std::string> sets) {
    const std::vector<Problem> problems = problems_with(std::move(sets));
    return problems.empty() ? std::string() : problems[0].nearest;
  };
  EXPECT_EQ(nearest({"parallel.cp=2", "parallel.cp_method=p2p"}), "\"ring\"");
  EXPECT_EQ(nearest({"parallel.cp=2", "parallel.cp_method=a2a+p2p"}), "\"ulysses+ring\"");
  EXPECT_EQ(nearest({"parallel.zero=full_shard"}), "3");
  EXPECT_EQ(nearest({"memory.recompute=true"}), "\"full\"");
  EXPECT_EQ(nearest({"optimizer.name=adamw_torch_fused"}), "\"adamw\"");
  EXPECT_EQ(nearest({"precision.compute=Float16"}), "\"f16\"");
  EXPECT_EQ(nearest({"run.device=gpu"}), "\"cuda\"");
  EXPECT_EQ(nearest({"optimizer.schedule.kind=WarmupDecayLR"}), "\"linear\"");
  EXPECT_EQ(nearest({"run.steps=1e3"}), "1000");
}

TEST(Elsewhere, SectionsAndAnswers) {
  EXPECT_EQ(key_elsewhere("activation_checkpoint.mode"), "memory.recompute");
  EXPECT_EQ(key_elsewhere("optimizer.unheard_of"), "") << "ours, not another system's optimizer";
  EXPECT_EQ(key_elsewhere("--tensor-model-parallel-size"), "parallel.tp");
  EXPECT_EQ(key_elsewhere("zero_optimization.offload_param.device"), "");
  EXPECT_NE(answer_elsewhere("zero_optimization.offload_param.device"), "");
  EXPECT_NE(answer_elsewhere("wandb.project"), "");
  EXPECT_EQ(answer_elsewhere("model.layers"), "");
}

// What is far from every key gets no suggestion, rather than one that misleads.
TEST(Elsewhere, NoSuggestionWhereNothingIsNear) {
  for (const char* key : {"parallel.data=2", "run.colour=1", "data.unheard_of=1", "checkpoint.orders=2"}) {
    const std::vector<Problem> problems = problems_with({key});
    ASSERT_EQ(problems.size(), 1u) << key;
    EXPECT_EQ(problems[0].nearest, "") << key;
  }
}

}  // namespace
}  // namespace quintet::config
