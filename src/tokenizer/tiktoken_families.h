// What tiktoken's files leave to the program that reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/word_patterns.h"

namespace quintet::tokenizer {

struct TiktokenFamily {
  WordPattern pattern;  // splits text into words
  std::vector<std::pair<std::string, int32_t>> special;
};

// By the file's name: r50k, p50k, gpt2; cl100k; o200k; qwen; tokenizer.model of Llama 3. `ranks` is the
// number of its tokens. A UserError lists these names for any other.
TiktokenFamily tiktoken_family(std::string_view file_name, int64_t ranks);

}  // namespace quintet::tokenizer
