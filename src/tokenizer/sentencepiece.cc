// SentencePiece models, by SentencePiece's own library.
#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/printable.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(std::string_view contents) {
    const auto status = processor_.LoadFromSerializedProto({contents.data(), contents.size()});
    if (!status.ok())
      base::fail_user("it is neither a tokenizer.json, nor a tiktoken file, nor a SentencePiece model");
  }
  using Tokenizer::encode;
  std::string_view name() const override { return "SentencePiece"; }
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
