// The regular expressions by which the well-known byte-level tokenizers split text into words, matched by
// hand-written code: faster than a general engine (docs/decisions/0015-tokenizers.md), and with the classes
// of Unicode 16.0 on every machine. Every other expression goes to PCRE2 (regex.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace quintet::tokenizer {

// What differs between the expressions. All of them cover any text without gaps.
struct WordPattern {
  enum class Contractions { none, lower_case, any_case, any_case_after_word };
  Contractions contractions =
      Contractions::none;  // 's 't 're 've 'm 'll 'd: words of their own, or at a word's end
  bool cased = false;      // a word is capitals, then small letters: "HelloWorld" are two
  bool any_prefix =
      false;       // a character other than a letter, number or line break may precede letters; else a space
  int digits = 0;  // most digits in a piece; 0: any number, after an optional space
  bool slash_tail = false;  // line breaks, or slashes too, belong to the punctuation before them
  bool line_breaks =
      false;  // white space that ends in line breaks is a piece; else all white space is treated alike
  bool whole_tail = false;  // white space at the end of the text is one piece
};

// The pattern that equals this expression, if it is a known one: GPT-2, Llama 3, Qwen, GPT-4 (cl100k),
// GPT-4o and GPT-OSS (o200k), Mistral (Tekken), and spellings of them in common files.
std::optional<WordPattern> known_pattern(std::string_view expression);
// By name; cl100k_pattern is that of tiktoken itself, where white space at the end of a text is one piece.
WordPattern gpt2_pattern();
WordPattern llama3_pattern();
WordPattern qwen2_pattern();
WordPattern cl100k_pattern();
WordPattern o200k_pattern();

// The length of the first piece of a valid, non-empty text.
size_t first_piece(const WordPattern& pattern, std::string_view text);

}  // namespace quintet::tokenizer
