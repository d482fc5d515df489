// A byte-level BPE tokenizer with special tokens, written as a folder that transformers would read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tokenizer/unicode.h"

namespace quintet::test {

// The character that stands for a byte in byte-level vocabularies.
inline std::string byte_character(int byte) {
  const auto plain = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  char32_t code = static_cast<char32_t>(byte);
  if (!plain(byte)) {
    code = 256;
    for (int other = 0; other < byte; ++other) code += !plain(other);
  }
  std::string text;
  tokenizer::append_utf8(code, text);
  return text;
}

// Tokens: the bytes, two line breaks as one, and the special ones.
inline nlohmann::ordered_json tiny_tokenizer() {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_character(byte)] = byte;
  const std::string line = byte_character('\n');
  vocab[line + line] = 256;
  Json added = Json::array();
  int id = 257;
  for (const char* token : {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<end_of_turn>"})
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", Json::array({Json::array({line, line})})}}}};
}

inline const std::string kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline void write_tiny_tokenizer(const base::Path& folder, const std::string& chat_template = kChatMl) {
  base::make_directories(folder);
  base::write_file_atomically(folder / "tokenizer.json", tiny_tokenizer().dump());
  base::write_file_atomically(
      folder / "tokenizer_config.json",
      nlohmann::ordered_json{
          {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}, {"chat_template", chat_template}}
          .dump());
}

}  // namespace quintet::test
