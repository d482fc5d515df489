// SentencePiece models, by SentencePiece's own library.
#include <sentencepiece_processor.h>

#include <exception>
#include <functional>

#include "base/error.h"
#include "base/printable.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// The fields of a serialised protocol buffer that are byte strings, as pairs of number and contents. False if
// it breaks off, or has a field of an unknown kind.
bool visit_fields(std::string_view message, const std::function<bool(uint64_t, std::string_view)>& visit) {
  const auto varint = [&](uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(message[0]);
      message.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (!message.empty()) {
    uint64_t tag = 0, value = 0;
    if (!varint(tag)) return false;
    size_t skipped = 0;
    switch (tag & 7) {
      case 0:
        if (!varint(value)) return false;
        break;
      case 1:
        skipped = 8;
        break;
      case 2:
        if (!varint(value) || value > message.size()) return false;
        if (!visit(tag >> 3, message.substr(0, value))) return false;
        skipped = value;
        break;
      case 5:
        skipped = 4;
        break;
      default:
        return false;
    }
    if (skipped > message.size()) return false;
    message.remove_prefix(skipped);
  }
  return true;
}

// The library trusts the tries in a model, and reads outside of a damaged one.
bool is_sound_model(std::string_view contents) {
  constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kCharsmap = 2;
  return visit_fields(contents, [&](uint64_t number, std::string_view part) {
    if (number != kNormalizer && number != kDenormalizer) return true;
    return visit_fields(part, [&](uint64_t field, std::string_view bytes) {
      return field != kCharsmap || bytes.empty() || is_sound_charsmap(bytes);
    });
  });
}

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(std::string_view contents) {
    bool is_model = is_sound_model(contents);
    try {
      is_model = is_model && processor_.LoadFromSerializedProto({contents.data(), contents.size()}).ok();
    } catch (const std::exception&) {  // of its trie, for a piece without a character
      is_model = false;
    }
    if (!is_model)
      base::fail_user(
          "it is neither a tokenizer.json, nor a tiktoken file, nor an undamaged SentencePiece model");
  }
  using Tokenizer::encode;
  Kind kind() const override { return Kind::SentencePiece; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  void encode(std::string_view text, std::vector<int32_t>& ids, bool frame) const override {
    std::string storage;
    text = valid_utf8(text, storage);
    if (frame && processor_.bos_id() >= 0) ids.push_back(processor_.bos_id());
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) base::fail_user("SentencePiece cannot encode the text: {}", status.ToString());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::vector<int> kept;
    for (size_t i = 0; i < ids.size(); ++i) {
      require_id(ids[i], i);
      if (!(skip_special && is_special(ids[i]))) kept.push_back(ids[i]);
    }
    std::string text;
    const auto status = processor_.Decode(kept, &text);
    if (!status.ok()) base::fail_user("SentencePiece cannot decode the ids: {}", status.ToString());
    return text;
  }
  std::string token(int32_t id) const override {
    require_id(id, 0);
    return processor_.IdToPiece(id);
  }
  std::optional<int32_t> id(std::string_view token) const override {
    const int found = processor_.PieceToId({token.data(), token.size()});
    // What is not a piece gets the id of the unknown one.
    if (processor_.IdToPiece(found) != token) return std::nullopt;
    return found;
  }
  bool is_special(int32_t id) const override { return processor_.IsControl(id) || processor_.IsUnknown(id); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view contents) {
  return std::make_unique<SentencePiece>(contents);
}

}  // namespace quintet::tokenizer
