#include "config/starting_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <type_traits>

#include "config/hf/config.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/place_paths.h"
#include "config/presets.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

// Values that what the key names would provide are unknown, not missing.
void spoil_model(const Leaves& leaves, Report& report) {
  const Recipe names;
  for_each_key(names, [&](const char* name, const auto&...) {
    const std::string key = name;
    if (key.starts_with("model.") && key != "model.preset" && !leaves.contains(key)) report.spoil(key);
  });
}

// The model, without the values that given keys make stale: a derived value follows its source.
void start_from_model(Recipe& recipe, const Model* preset, const Leaves& leaves) {
  const auto given = [&](const char* key) { return leaves.contains(std::string("model.") + key); };
  Model m = *preset;
  if ((given("embed") || given("heads")) && preset->head_dim == preset->embed / preset->heads) m.head_dim = 0;
  if (given("heads") && preset->kv_heads == preset->heads) m.kv_heads = 0;
  if (given("embed") && has_learned_positions(preset->family) && preset->ffn == 4 * preset->embed) m.ffn = 0;
  const Mla& mla = preset->mla;
  if ((given("mla.nope_dim") || given("mla.rope_dim")) && preset->head_dim == mla.nope_dim + mla.rope_dim)
    m.head_dim = 0;
  if (!preset->has_dense_block() && preset->ffn == preset->moe.ffn) {  // one width with two names
    if (given("ffn")) m.moe.ffn = 0;
    if (given("moe.ffn") || given("moe.first_dense") || given("moe.every")) m.ffn = 0;
  }
  const auto switched_off = [&](const char* key) {
    const auto found = leaves.find(std::string("model.") + key);
    return found != leaves.end() && found->second->value_exact<int64_t>() == 0;
  };
  if (switched_off("moe.experts")) m.moe = {};
  if (switched_off("mla.kv_rank") && mla.kv_rank > 0) m.mla = {}, m.head_dim = 0;
  const auto kind = leaves.find("model.rope_scaling.kind");
  if (kind != leaves.end() &&
      text_of(*kind->second) != fmt::format("\"{}\"", name_of(preset->rope_scaling.kind)))
    m.rope_scaling = {};
  recipe.model = m;
}

// A path of the recipe, made absolute: relative to the recipe's folder, or, from an override, to the working
// directory. Values of overrides have no line (apply_override).
base::Path placed(const Leaves& leaves, const char* key, const std::string& text,
                  const std::optional<base::Path>& folder) {
  const auto leaf = leaves.find(key);
  const bool in_file = folder && leaf != leaves.end() && leaf->second->source().begin.line > 0;
  const base::Path path(with_home(text));
  return std::filesystem::absolute(in_file ? *folder / path : path).lexically_normal();
}

// The texts of the model's keys.
std::map<std::string, std::string> model_texts(const Recipe& recipe) {
  std::map<std::string, std::string> texts;
  for_each_key(recipe, [&]<class T>(const char* key, const T& v, const auto&...) {
    if (!std::string_view(key).starts_with("model.")) return;
    if constexpr (std::is_enum_v<T>)
      texts[key] = fmt::format("\"{}\"", name_of(v));
    else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      texts[key] = fmt::format("{}", v);
    else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>)
      texts[key] = fmt::format("[{}]", fmt::join(v, ", "));
  });
  return texts;
}

}  // namespace

void start_from_preset(Recipe& recipe, const Leaves& leaves, Report& report) {
  const std::string name = given_text(leaves, "model.preset");
  if (name.empty()) return;
  if (const Model* preset = find_preset(name))
    start_from_model(recipe, preset, leaves);
  else
    spoil_model(leaves, report);  // another rule reports the unknown preset
}

void start_from_hf(Recipe& recipe, const Leaves& leaves, const std::optional<base::Path>& folder,
                   Report& report) {
  const std::string text = given_text(leaves, "model.hf");
  if (text.empty()) return;
  if (!given_text(leaves, "model.preset").empty())
    report.add("model.hf and model.preset exclude each other", "model.preset",
               "contradicts model.hf: both set the sizes of the model", "leave one of them out");
  const base::Path path = placed(leaves, "model.hf", text, folder);
  recipe.model.hf = path.string();
  if (const auto why = why_no_hf_folder(path, text)) {
    const auto is_missing = [&](const char* key) { return !leaves.contains(key); };
    const std::array sizes = {"model.layers", "model.embed", "model.heads", "model.vocab", "data.tokenizer"};
    if (std::none_of(sizes.begin(), sizes.end(), is_missing)) return;
    report.add("model.hf is a Hugging Face folder", "model.hf", *why);
    return spoil_model(leaves, report);
  }
  const HfConfig config = read_hf_config(base::read_file(path / kHfConfigFile));
  for (const std::string& problem : config.problems)
    report.add("config.json is supported", "model.hf", fmt::format("{}: {}", kHfConfigFile, problem));
  if (!config.problems.empty()) return spoil_model(leaves, report);
  recipe.model = config.model;
  recipe.model.hf = path.string();
  const std::string rope = given_text(leaves, "model.rope_scaling.kind");
  if (!rope.empty() && rope != name_of(config.model.rope_scaling.kind)) recipe.model.rope_scaling = {};
  if (leaves.contains("data.tokenizer")) return;
  if (has_tokenizer(path))
    recipe.data.tokenizer = path.string();
  else
    report.add("model.hf has a tokenizer", "data.tokenizer",
               fmt::format("is required: \"{}\" has neither tokenizer.json nor tokenizer.model", text));
}

void check_agreement_with_hf(const Recipe& before, const Recipe& recipe, const Leaves& leaves,
                             Report& report) {
  if (before.model.hf.empty() || before.model.layers == 0) return;
  const auto hf = model_texts(before), here = model_texts(recipe);
  const bool upcycling = recipe.model.moe.upcycle && before.model.moe.experts == 0;
  if (recipe.model.moe.upcycle && !upcycling)
    report.add("model keys agree with config.json", "model.moe.upcycle",
               fmt::format("contradicts {} of the folder in model.hf, which has {} experts already",
                           kHfConfigFile, before.model.moe.experts),
               "false");
  if (const int64_t n = recipe.model.moe.upcycle_slices; upcycling && n > 0 && before.model.ffn % n != 0)
    report.add("model keys agree with config.json", "model.moe.upcycle_slices",
               fmt::format("{} does not divide the width {} of the feed-forward network in model.hf", n,
                           before.model.ffn),
               nearest_divisors(before.model.ffn, n));
  if (recipe.model.mtp.layers > 0) {
    const HfConfig config = read_hf_config(base::read_file(base::Path(before.model.hf) / kHfConfigFile));
    if (recipe.model.mtp.layers > config.predict_layers)
      report.add(
          "model keys agree with config.json", "model.mtp.layers",
          fmt::format("{} contradicts {} of the folder in model.hf, which has {} layers for multi-token "
                      "prediction (num_nextn_predict_layers)",
                      recipe.model.mtp.layers, kHfConfigFile, config.predict_layers),
          fmt::format("{}", config.predict_layers));
  }
  for (const auto& [key, text] : here)
    if (leaves.contains(key) && !is_free_beside_hf(key, upcycling) && hf.at(key) != text &&
        report.usable(key))
      report.add("model keys agree with config.json", key,
                 fmt::format("{} contradicts {} of the folder in model.hf, which says {}", text,
                             kHfConfigFile, hf.at(key)),
                 "leave it out");
}

void drop_dense_width(Recipe& recipe, const Leaves& leaves) {
  const bool given = leaves.contains("model.ffn") || !leaves.contains("model.moe.ffn");
  Model& m = recipe.model;
  if (find_preset(m.preset) != nullptr && !given && m.moe.experts > 0 && !m.has_dense_block()) m.ffn = 0;
}

void check_family_of_preset(const Recipe& recipe, Report& report) {
  const Model* preset = find_preset(recipe.model.preset);
  if (preset == nullptr || preset->family == recipe.model.family) return;
  report.add("model.family matches model.preset", "model.family",
             fmt::format("\"{}\" contradicts model.preset \"{}\", which has family \"{}\"",
                         name_of(recipe.model.family), preset->preset, name_of(preset->family)),
             fmt::format("\"{}\"", name_of(preset->family)));
}

}  // namespace quintet::config
