// Models: turn one word into token ids. The word is bytes if the tokenizer is byte-level, else valid UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tokenizer {

// The tokens of a model, each a string of bytes, by id and back. Ids may have gaps: such a token is empty.
class Vocabulary {
 public:
  void add(std::string token, int32_t id);  // UserError for a negative id or one above 2^24
  std::optional<int32_t> id(std::string_view token) const;
  const std::string& token(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }  // the largest id and one

 private:
  struct Word {
    std::string text;
    int32_t id;
  };
  struct Slot {
    uint32_t tag = 0;   // of the hash
    uint32_t word = 0;  // 1-based; 0: none
  };
  size_t slot_of(std::string_view text) const;       // its own, or the free one for it
  std::vector<Slot, base::HugePages<Slot>> slots_ =  // open addressing, at most half full
      std::vector<Slot, base::HugePages<Slot>>(16);
  std::vector<Word> words_;
  std::vector<uint32_t> by_id_;  // 1-based; 0: none
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Kind kind() const = 0;
  // Appends the ids of a non-empty word. Safe for several threads.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  // Cuts a text that no pre-tokenizer splits where no token can span the cut, which changes no id and keeps
  // words short: the length of the first piece.
  virtual size_t first_piece(std::string_view text) const { return text.size(); }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// From the "model" of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel; any other type is a UserError.
std::unique_ptr<Model> make_model(const nlohmann::json& description, bool byte_level);

// The bytes that a byte-level file spells as `token`, or nothing if a character of it stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view token);
// How such a file spells bytes.
std::string spelling_of_bytes(std::string_view bytes);

// The id of "<0x41>" for each byte, as files with byte fallback have them; -1 where there is none.
std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

}  // namespace quintet::tokenizer
