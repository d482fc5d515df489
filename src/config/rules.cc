// Rules for names and paths, and the list of all rules.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/wrap.h"
#include "config/presets.h"
#include "config/rule.h"
#include "config/tokenizer_size.h"
#include "config/toml_text.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

void name_is_a_file_name(const Recipe& r, const Fail& fail) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  constexpr size_t kLongest = 100;  // file systems take 255 bytes, and names of files are made from it
  if (!r.name.empty() && r.name.size() <= kLongest && r.name[0] != '.' &&
      std::all_of(r.name.begin(), r.name.end(), plain))
    return;
  std::string better;
  for (const unsigned char c : std::string_view(r.name).substr(0, kLongest))
    better += plain(c) && !(better.empty() && c == '.') ? static_cast<char>(c) : '-';
  fail("name",
       fmt::format("is used as a folder name: use at most {} letters, digits, '-', '_' and '.', not starting "
                   "with '.'; got {}",
                   kLongest, toml_text(base::shortened(r.name, 2 * kLongest))),
       fmt::format("\"{}\"", better.find_first_not_of("-.") == std::string::npos ? "run" : better));
}

void preset_exists(const Recipe& r, const Fail& fail) {
  if (r.model.preset.empty() || find_preset(r.model.preset) != nullptr) return;
  const std::string near = likely_preset(r.model.preset);
  fail("model.preset", fmt::format("\"{}\" is not a preset; {}", r.model.preset, presets_beside(near)),
       near.empty() ? "" : fmt::format("\"{}\"", near));
}

void tokenizer_loads(const Recipe& r, const Fail& fail) {
  const TokenizerSize size = tokenizer_size(r.data.tokenizer);
  if (!size.error.empty()) fail("data.tokenizer", size.error, "\"bytes\"");
}

void paths_are_named(const Recipe& r, const Fail& fail) {
  for (const std::string& path : r.data.path)
    if (path.empty()) fail("data.path", "contains an empty entry; each must name a file or a folder");
}

void skip_has_patterns(const Recipe& r, const Fail& fail) {
  for (const std::string& pattern : r.data.skip)
    if (pattern.find_first_not_of('/') == std::string::npos)
      fail("data.skip", fmt::format("contains \"{}\", which matches no name", pattern), "[]");
}

std::vector<Rule> name_rules() {
  return {
      {"name is a valid file name", {"name"}, name_is_a_file_name},
      {"model.preset is a known preset", {"model.preset"}, preset_exists},
      {"data.tokenizer can be loaded", {"data.tokenizer"}, tokenizer_loads},
      {"data.path has no empty entries", {"data.path"}, paths_are_named},
      {"data.skip has no empty patterns", {"data.skip"}, skip_has_patterns},
  };
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = [] {
    std::vector<Rule> all = name_rules();
    for (const std::vector<Rule>& more :
         {geometry_rules(), layout_rules(), precision_rules(), pipeline_rules(), memory_rules(),
          optimizer_rules(), block_rules(), expert_rules(), latent_attention_rules(), mesh_rules(),
          quantised_rules(), training_rules(), data_rules(), size_rules()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return kRules;
}

}  // namespace

void check_rules(const Recipe& recipe, Report& report) {
  // Decided before any rule runs, so that two rules that reject the same key are both reported.
  std::vector<const Rule*> ready;
  for (const Rule& rule : rules())
    if (std::all_of(rule.keys.begin(), rule.keys.end(), [&](const char* key) { return report.usable(key); }))
      ready.push_back(&rule);
  for (const Rule* rule : ready) rule->check(recipe, Fail{*rule, report});
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
  return names;
}

}  // namespace quintet::config
