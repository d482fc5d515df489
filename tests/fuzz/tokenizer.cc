// Tokenizers of other systems: tokenizer.json, tiktoken's and SentencePiece's files. An accepted one
// encodes any text to ids that it decodes.
#include "tokenizer/tokenizer.h"

#include "fuzz/target.h"

namespace {

void use(const quintet::tokenizer::Tokenizer& tokenizer) {
  using quintet::fuzz::require;
  for (const std::string_view text : {"Hello, w\u00f6rld's 12345 \u6f22\u5b57\r\n\t  x", "",
                                      "\xff\xc3<s>\u0301", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids, true);
    for (const int32_t id : ids)
      require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
    tokenizer.decode(ids);
    tokenizer.decode(ids, true);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view text = fuzz::text_of(data, size);
  if (text.starts_with('{')) return fuzz::run([&] { use(*tokenizer::load_hf_tokenizer(text)); });
  if (text.starts_with('\n')) return fuzz::run([&] { use(*tokenizer::load_sentencepiece(text)); });
  return fuzz::run([&] { use(*tokenizer::load_tiktoken(text, "cl100k_base.tiktoken")); });
}
