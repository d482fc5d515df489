#include "data/tokenizer.h"

#include "base/error.h"

namespace quintet::data {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > 255)
      base::fail_user("token {} at position {} is not a byte: the byte tokenizer has ids 0 to 255", ids[i],
                      i);
    text.push_back(static_cast<char>(ids[i]));
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  base::fail_user("unknown tokenizer '{}'; known: \"bytes\" (one token per byte, vocabulary 256)", name);
}

}  // namespace quintet::data
