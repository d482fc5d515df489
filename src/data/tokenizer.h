// Conversion between text and token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

// Implementations are immutable after construction, so several threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;  // every id is in [0, vocab_size)
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;  // appends
  virtual std::string decode(std::span<const int32_t> ids) const = 0;  // UserError for an id out of range

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// One token per byte, vocabulary 256: every text round-trips exactly.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
};

// Creates a tokenizer by its recipe name: "bytes". Any other name is a UserError that lists the known ones.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace quintet::data
