// Models that take a word's longest known pieces from the left (WordPiece), or the word as it is (WordLevel).
#pragma once

#include "tokenizer/model.h"

namespace quintet::tokenizer {

class WordPiece final : public Model {
 public:
  explicit WordPiece(const nlohmann::json& description);
  Kind kind() const override { return Kind::WordPiece; }
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  std::string prefix_;
  int32_t unknown_ = 0;
  size_t longest_word_ = 100;  // characters; a longer word is unknown
  size_t longest_token_ = 0;   // bytes
};

class WordLevel final : public Model {
 public:
  explicit WordLevel(const nlohmann::json& description);
  Kind kind() const override { return Kind::WordLevel; }
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  std::optional<int32_t> unknown_;
};

}  // namespace quintet::tokenizer
