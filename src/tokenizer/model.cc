#include "tokenizer/model.h"

#include <fmt/format.h>

#include <array>

#include "base/checksum.h"
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

uint64_t hash_of(std::string_view text) { return base::checksum_of(std::as_bytes(std::span(text))); }
uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

void Vocabulary::add(std::string token, int32_t id) {
  constexpr int32_t kLargest = 1 << 24;
  if (id < 0 || id > kLargest)
    base::fail_user("tokenizer file: token '{}' has the id {}; ids are 0 to {}", base::printable(token), id,
                    kLargest);
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1);
  Slot& slot = slots_[slot_of(token)];
  if (slot.word == 0) {
    slot = {tag_of(hash_of(token)), static_cast<uint32_t>(words_.size()) + 1};
    words_.push_back({std::move(token), id});
  }
  words_[slot.word - 1].id = id;  // of a token that is there twice, the last id counts
  by_id_[static_cast<size_t>(id)] = slot.word;
  if (2 * words_.size() <= slots_.size()) return;
  slots_.assign(2 * slots_.size(), {});
  for (uint32_t word = 0; word < words_.size(); ++word)
    slots_[slot_of(words_[word].text)] = {tag_of(hash_of(words_[word].text)), word + 1};
}

size_t Vocabulary::slot_of(std::string_view text) const {
  const uint64_t hash = hash_of(text);
  for (size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const auto [tag, word] = slots_[slot];
    if (word == 0 || (tag == tag_of(hash) && words_[word - 1].text == text)) return slot;
  }
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const uint32_t word = slots_[slot_of(token)].word;
  return word == 0 ? std::nullopt : std::optional(words_[word - 1].id);
}

const std::string& Vocabulary::token(int32_t id) const {
  static const std::string none;
  const uint32_t word = by_id_[static_cast<size_t>(id)];
  return word == 0 ? none : words_[word - 1].text;
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
