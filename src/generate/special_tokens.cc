#include "generate/special_tokens.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "config/hf/config.h"

namespace quintet::generate {
namespace {

using nlohmann::json;
using tokenizer::Tokenizer;

// A JSON file of a folder; an empty object when it is missing or no JSON.
json read_object(const base::Path& file) {
  if (!base::file_exists(file)) return json::object();
  json value = base::parse_json(base::read_file(file));
  return value.is_object() ? value : json::object();
}

void add_ids(const json& value, std::vector<int32_t>& ids) {
  if (value.is_number_integer()) ids.push_back(value.get<int32_t>());
  if (value.is_array())
    for (const json& one : value) add_ids(one, ids);
}

// A special token as tokenizer_config.json spells it: a text, or an object with one.
std::optional<int32_t> named(const json& files, const char* key, const Tokenizer& tokenizer) {
  if (!files.contains(key)) return std::nullopt;
  const json& value = files[key];
  const json& text = value.is_object() && value.contains("content") ? value["content"] : value;
  return text.is_string() ? tokenizer.id(text.get<std::string>()) : std::nullopt;
}

// The first of the usual names that is a special token.
std::optional<int32_t> usual_end(const Tokenizer& tokenizer) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"})
    if (const auto id = tokenizer.id(name); id && tokenizer.is_special(*id)) return id;
  return std::nullopt;
}

}  // namespace

SpecialTokens special_tokens(const config::Recipe& recipe, const Tokenizer& tokenizer) {
  SpecialTokens tokens;
  if (recipe.model.hf.empty() && !recipe.data.end.empty()) tokens.end = tokenizer.id(recipe.data.end);
  if (tokens.end) tokens.ends = {*tokens.end};
  const base::Path given(recipe.data.tokenizer);
  const base::Path folder = !recipe.model.hf.empty() && base::directory_exists(recipe.model.hf)
                                ? base::Path(recipe.model.hf)
                            : base::directory_exists(given) ? given
                                                            : given.parent_path();
  if (base::file_exists(given) || base::directory_exists(folder)) {
    const json generation = read_object(folder / "generation_config.json"),
               model = read_object(folder / config::kHfConfigFile),
               names = read_object(folder / "tokenizer_config.json");
    for (const json* file : {&generation, &model})
      if (tokens.ends.empty() && file->contains("eos_token_id"))
        add_ids((*file)["eos_token_id"], tokens.ends);
    tokens.begin = named(names, "bos_token", tokenizer);
    if (!tokens.end) tokens.end = named(names, "eos_token", tokenizer);
  }
  if (!tokens.end && tokens.ends.empty()) tokens.end = usual_end(tokenizer);
  if (tokens.ends.empty() && tokens.end) tokens.ends = {*tokens.end};
  return tokens;
}

}  // namespace quintet::generate
