// A tokenizer put together from parts, as a tokenizer.json describes it: added tokens, normaliser,
// pre-tokenizer, model, special tokens around a sequence, decoder.
#pragma once

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tokenizer {

struct PipelineParts {
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  std::unique_ptr<Model> model;
  std::vector<AddedToken> added;
  Frame frame;
  std::unique_ptr<Decoder> decoder;  // null: tokens with spaces between
  bool byte_level = false;           // the model's tokens are bytes
};

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);

  using Tokenizer::encode;
  Kind kind() const override { return parts_.model->kind(); }
  int64_t vocab_size() const override { return vocab_size_; }
  void encode(std::string_view text, std::vector<int32_t>& ids, bool frame) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string token(int32_t id) const override;
  std::optional<int32_t> id(std::string_view token) const override;
  bool is_special(int32_t id) const override;

 private:
  void encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, bool first, std::vector<int32_t>& ids) const;
  void encode_pattern(std::string_view text, std::vector<int32_t>& ids) const;
  const AddedToken* added(int32_t id) const;

  PipelineParts parts_;
  const WordPattern* pattern_ = nullptr;  // of the pre-tokenizer, where it does nothing else
  AddedTokenFinder raw_, normalized_;
  std::unordered_map<int32_t, size_t> added_by_id_;
  int64_t vocab_size_ = 0;
  uint64_t serial_;  // names this tokenizer in threads' caches; never used twice
};

}  // namespace quintet::tokenizer
