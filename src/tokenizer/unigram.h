// Unigram language model: of all ways to cut a word into tokens, the one with the largest sum of log
// probabilities.
#pragma once

#include "tokenizer/model.h"

namespace quintet::tokenizer {

class Unigram final : public Model {
 public:
  explicit Unigram(const nlohmann::json& description);
  Kind kind() const override { return Kind::Unigram; }
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // A trie over bytes, its nodes in one array: the children of a node are contiguous and sorted.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t id = -1;
  };
  void build_trie();
  const Node* child(const Node& node, uint8_t byte) const;

  std::vector<double> scores_;
  std::vector<Node> trie_;
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_ids_;
};

}  // namespace quintet::tokenizer
