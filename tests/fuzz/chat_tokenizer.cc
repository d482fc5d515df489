// tokenizer_config.json beside a tokenizer: special tokens and chat templates by name. An accepted one has at
// least what it names.
#include "chat/tokenizer.h"
#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  static const fuzz::ScratchFolder folder;
  static const std::string tokenizer = folder.write(
      "tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens":
                            [{"content": "<s>", "id": 2, "special": true}]})");
  folder.write("tokenizer_config.json", fuzz::text_of(data, size));
  return fuzz::run([&] {
    const chat::ChatTokenizer chat(tokenizer, "");
    for (int32_t id = 0; id < chat.tokens().vocab_size(); ++id) chat.ends_turn(id);
    if (chat.has_template()) {
      fuzz::require(!chat.chat_template(true).source().empty() || chat.templates_hash() != 0, "a template");
      chat.chat_template(false);
    }
  });
}
