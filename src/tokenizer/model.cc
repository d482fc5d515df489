#include "tokenizer/model.h"

#include <fmt/format.h>

#include <array>

#include "tokenizer/bpe.h"
#include "tokenizer/json_field.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_models.h"

namespace quintet::tokenizer {
namespace {

// The character that stands for each byte: itself where it is visible in Latin-1, else one of U+0100 and up
// in order.
const std::array<char32_t, 256>& byte_spellings() {
  static const auto table = [] {
    std::array<char32_t, 256> codes{};
    char32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      codes[byte] = visible ? byte : next++;
    }
    return codes;
  }();
  return table;
}

}  // namespace

void Vocabulary::add(std::string token, int32_t id) {
  constexpr int32_t kLargest = 1 << 24;
  if (id < 0 || id > kLargest)
    base::fail_user("tokenizer file: token '{}' has the id {}; ids are 0 to {}", base::printable(token), id,
                    kLargest);
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = token;
  ids_[std::move(token)] = id;
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  static const auto reverse = [] {
    std::array<int16_t, 512> bytes{};
    bytes.fill(-1);
    for (uint32_t byte = 0; byte < 256; ++byte) bytes[byte_spellings()[byte]] = static_cast<int16_t>(byte);
    return bytes;
  }();
  std::string bytes;
  for (const char* at = token.data(); at != token.data() + token.size();) {
    const char32_t code = next_code(at);
    if (code >= reverse.size() || reverse[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(reverse[code]));
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(byte_spellings()[static_cast<uint8_t>(byte)], text);
  return text;
}

std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte)
    ids.push_back(vocabulary.id(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  return ids;
}

std::unique_ptr<Model> make_model(const Json& description, bool byte_level) {
  std::string type = json_field_or<std::string>(description, "type", "", "model");
  if (type.empty() && description.contains("merges")) type = "BPE";  // files of old versions do not say
  if (type == "BPE") return std::make_unique<Bpe>(description, byte_level);
  if (byte_level)
    base::fail_user("tokenizer file: ByteLevel goes with a BPE model, this one is '{}'",
                    base::printable(type));
  if (type == "Unigram") return std::make_unique<Unigram>(description);
  if (type == "WordPiece") return std::make_unique<WordPiece>(description);
  if (type == "WordLevel") return std::make_unique<WordLevel>(description);
  base::fail_user(
      "tokenizer file: the model '{}' is not supported; known: BPE, Unigram, WordPiece, WordLevel",
      base::printable(type));
}

}  // namespace quintet::tokenizer
