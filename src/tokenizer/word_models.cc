#include "tokenizer/word_models.h"

#include <algorithm>

#include "tokenizer/json_field.h"

namespace quintet::tokenizer {
namespace {

void read_words(const Json& description, Vocabulary& vocabulary) {
  const auto found = description.find("vocab");
  if (found == description.end() || !found->is_object())
    base::fail_user("tokenizer file: model.vocab is not an object of tokens and ids");
  for (const auto& [token, id] : found->items())
    vocabulary.add(token, json_as<int32_t>(id, "an id of model.vocab"));
}

}  // namespace

WordPiece::WordPiece(const Json& description) {
  read_words(description, vocabulary_);
  prefix_ = json_field_or<std::string>(description, "continuing_subword_prefix", "##", "model");
  longest_word_ = json_field_or<uint32_t>(description, "max_input_chars_per_word", 100, "model");
  const auto unknown = json_field_or<std::string>(description, "unk_token", "[UNK]", "model");
  const auto id = vocabulary_.id(unknown);
  if (!id)
    base::fail_user("tokenizer file: model.unk_token '{}' is not in the vocabulary",
                    base::printable(unknown));
  unknown_ = *id;
  for (int32_t i = 0; i < vocabulary_.size(); ++i)
    longest_token_ = std::max(longest_token_, vocabulary_.token(i).size());
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto letters = std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; });
  const size_t before = ids.size();
  if (static_cast<size_t>(letters) > longest_word_) {
    ids.push_back(unknown_);
    return;
  }
  std::string spelled;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = std::min(word.size(), begin + longest_token_);
    std::optional<int32_t> id;
    for (; end > begin; --end) {
      if (end < word.size() && (word[end] & 0xC0) == 0x80) continue;  // not between characters
      const std::string_view piece = word.substr(begin, end - begin);
      id = begin == 0 ? vocabulary_.id(piece) : vocabulary_.id(spelled.assign(prefix_).append(piece));
      if (id) break;
    }
    if (!id) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(*id);
    begin = end;
  }
}

WordLevel::WordLevel(const Json& description) {
  read_words(description, vocabulary_);
  unknown_ = vocabulary_.id(json_field_or<std::string>(description, "unk_token", "[UNK]", "model"));
}

void WordLevel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto id = vocabulary_.id(word);
  if (!id && !unknown_)
    base::fail_user("the tokenizer has no token for '{}', and no unknown token (unk_token)",
                    base::printable(word));
  ids.push_back(id ? *id : *unknown_);
}

}  // namespace quintet::tokenizer
