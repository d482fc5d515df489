#include "tools/exported_tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "config/tokenizer_size.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {

using Json = nlohmann::ordered_json;

namespace {

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// One token per byte: the alphabet of byte-level BPE, whose tokens spell printable bytes as themselves and
// the others by letters from U+0100 on, with the byte as the id.
// A model of masked tokens has one more, its mask.
std::string byte_tokenizer_json(const std::string& mask) {
  Json added = Json::array();
  if (!mask.empty())
    added.push_back({{"id", config::kByteMask},
                     {"content", mask},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  Json vocabulary = Json::object();
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    vocabulary[utf8(printable ? byte : next++)] = byte;
  }
  const Json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", level},
                          {"post_processor", nullptr},
                          {"decoder", level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  return base::json_text(tokenizer, 3) + "\n";
}

// The mask token of a model that predicts masked tokens; empty otherwise.
std::string mask_of(const config::Recipe& recipe) {
  return recipe.model.family == config::Family::Bert ? recipe.data.mlm.mask : "";
}

std::string config_text(const config::Recipe& recipe, const char* tokenizer_class) {
  const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
  const generate::SpecialTokens tokens = generate::special_tokens(recipe, *tokenizer);
  Json config = {{"tokenizer_class", tokenizer_class},
                 {"model_max_length", recipe.data.seq_len},
                 {"clean_up_tokenization_spaces", false}};
  if (tokens.begin) config["bos_token"] = tokenizer->token(*tokens.begin);
  if (tokens.end) config["eos_token"] = tokenizer->token(*tokens.end);
  if (const std::string mask = mask_of(recipe); !mask.empty()) config["mask_token"] = mask;
  return base::json_text(config, 2) + "\n";
}

}  // namespace

std::map<std::string, std::string> tokenizer_texts(const config::Recipe& recipe) {
  constexpr const char* kFast = "PreTrainedTokenizerFast";
  const base::Path file(recipe.data.tokenizer);
  if (tokenizer::names_byte_tokenizer(recipe.data.tokenizer))
    return {{"tokenizer.json", byte_tokenizer_json(mask_of(recipe))},
            {"tokenizer_config.json", config_text(recipe, kFast)}};
  if (!base::file_exists(file)) return {};
  const std::string contents = base::read_file(file);
  if (Json::accept(contents))
    return {{"tokenizer.json", contents}, {"tokenizer_config.json", config_text(recipe, kFast)}};
  if (file.extension() == ".model" &&
      tokenizer::load_tokenizer(file.string())->kind() == tokenizer::Kind::SentencePiece)
    return {{"tokenizer.model", contents}, {"tokenizer_config.json", config_text(recipe, "LlamaTokenizer")}};
  return {};
}

std::string with_special_tokens(std::string_view config, const generate::SpecialTokens& tokens) {
  Json json = Json::parse(config);
  const auto id = [](const std::optional<int32_t>& token) { return token ? Json(*token) : Json(); };
  json["bos_token_id"] = id(tokens.begin);
  json["eos_token_id"] = tokens.ends.size() > 1 ? Json(tokens.ends) : id(tokens.end);
  return base::json_text(json, 3) + "\n";
}

}  // namespace quintet::tools
