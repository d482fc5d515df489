// SentencePiece's compiled normalisation rules, as a tokenizer.json carries them: a double-array trie from
// character sequences to replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::tokenizer {

// Whether no text leads a lookup outside these bytes: the length of the trie, the trie, the replacements.
bool is_sound_charsmap(std::string_view bytes);

class CharsMap {
 public:
  explicit CharsMap(const std::string& base64);  // UserError when the bytes are not such a map
  void apply(std::string& text) const;

 private:
  // The replacement of the shortest prefix of `chunk` that has one.
  std::optional<std::string_view> replacement(std::string_view chunk) const;
  std::vector<uint32_t> trie_;
  std::string replacements_;  // each ends with a NUL
};

}  // namespace quintet::tokenizer
