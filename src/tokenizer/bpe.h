// Byte-pair encoding: the pair of neighbours whose merge was learnt first is joined, until none is left.
#pragma once

#include "tokenizer/merge_table.h"
#include "tokenizer/model.h"

namespace quintet::tokenizer {

class Bpe final : public Model {
 public:
  // From the "model" of a tokenizer.json. Dropout is refused.
  Bpe(const nlohmann::json& description, bool byte_level);
  // From tokens whose id is also the rank of the merge that makes them, as tiktoken files have them.
  explicit Bpe(std::vector<std::pair<std::string, int32_t>> ranked_tokens);

  Kind kind() const override { return Kind::Bpe; }
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;
  size_t first_piece(std::string_view text) const override;

 private:
  void read_vocabulary(const nlohmann::json& description);
  void read_merges(const nlohmann::json& description);
  void derive_split_mark();
  void symbols_of(std::string_view word, std::vector<int32_t>& symbols) const;
  void derive_byte_ranks();
  // `word` is what the symbols stand for, byte by byte, or empty. At most kShortWord symbols.
  void merge_short(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  bool byte_level_ = false, byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false;
  std::string prefix_, suffix_;  // of the pieces after a word's first, of its last
  std::optional<int32_t> unknown_;
  std::vector<int32_t> byte_ids_;  // of single bytes, or of "<0x41>"; -1: none
  std::vector<uint32_t>
      byte_ranks_;  // of two bytes, where the model is of bytes: no search for the first pairs
  MergeTable merges_;
  std::string split_mark_;  // see first_piece; empty: none
};

}  // namespace quintet::tokenizer
