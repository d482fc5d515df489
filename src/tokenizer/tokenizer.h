// Conversion between text and token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::tokenizer {

enum class Kind : uint8_t { Bytes, Bpe, Unigram, WordPiece, WordLevel, SentencePiece };
std::string_view to_string(Kind kind);  // "bytes", "BPE", ...

// Implementations are immutable after construction, so several threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual Kind kind() const = 0;
  virtual int64_t vocab_size() const = 0;  // every id is in [0, vocab_size)

  // Appends the ids of `text`. Bytes that are not valid UTF-8 count as U+FFFD, except for the byte
  // tokenizer. `frame`: with the special tokens that the tokenizer puts around a sequence, such as a
  // beginning-of-text token.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, bool frame = false) const = 0;
  // UserError for an id out of range. `skip_special` leaves out special tokens.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  // The token of an id as its file spells it, and back; for people and for special tokens by name.
  virtual std::string token(int32_t id) const = 0;
  virtual std::optional<int32_t> id(std::string_view token) const = 0;
  virtual bool is_special(int32_t) const { return false; }

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
  void require_id(int32_t id, size_t position) const;  // UserError if it is out of range
};

// What the ids of a tokenizer mean, as hexadecimal digits: a hash of the token of every id. Equal for two
// files of one vocabulary, whatever their formats and wherever they lie.
std::string vocabulary_hash(const Tokenizer& tokenizer);
// The first id whose token differs between two tokenizers, or that only the first one has; empty when every
// id of the first means the same to the second.
std::optional<int32_t> first_other_token(const Tokenizer& first, const Tokenizer& second);

// One token per byte, vocabulary 256: every text round-trips exactly.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  Kind kind() const override { return Kind::Bytes; }
  int64_t vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& ids, bool frame = false) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const override;
  std::string token(int32_t id) const override;
  std::optional<int32_t> id(std::string_view token) const override;
};

// "bytes" names the byte tokenizer, everything else a path.
constexpr bool names_byte_tokenizer(std::string_view name_or_path) { return name_or_path == "bytes"; }
// "bytes", or the path of a tokenizer: a folder with tokenizer.json or tokenizer.model, or such a file, or
// a tiktoken file. Anything else is a UserError that lists what there is.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path);
std::unique_ptr<Tokenizer> load_hf_tokenizer(std::string_view json);  // the contents of a tokenizer.json
// The contents of a tiktoken file; the expression that splits text, and the special tokens, follow from the
// file's name (cl100k_base, o200k_base, r50k_base, qwen, or Llama 3's tokenizer.model).
std::unique_ptr<Tokenizer> load_tiktoken(std::string_view contents, std::string_view file_name);
std::unique_ptr<Tokenizer> load_sentencepiece(
    std::string_view contents);  // the contents of a SentencePiece model

}  // namespace quintet::tokenizer
