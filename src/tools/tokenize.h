// The work behind `quintet tokenizer`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {

struct TrainTokenizerOptions {
  std::vector<std::string> paths;
  int32_t vocab = 0;
  std::string pattern;  // of tokenizer_patterns()
  std::vector<std::string> special;
  base::Path out;
  int threads = 1;
};
struct TrainedTokenizer {
  int64_t files = 0, bytes = 0, words = 0, vocab = 0;
};
// Names of the ways to split text that `train` offers: gpt2, llama3, qwen2, o200k, tekken.
std::vector<std::string> tokenizer_patterns();
TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options);

struct TokenCount {
  int64_t files = 0, documents = 0, bytes = 0, tokens = 0;
};
TokenCount count_tokens(const tokenizer::Tokenizer& tokenizer, std::span<const std::string> paths,
                        int threads);

// The ids of a text, or of each of its lines, separated by spaces: a line for every text.
std::string encode_text(const tokenizer::Tokenizer& tokenizer, std::string_view text, bool by_line,
                        bool special);
// Numbers separated by white space or commas, such as `encode` prints. UserError that names the first that
// is none.
std::vector<int32_t> parse_ids(std::string_view text);

nlohmann::ordered_json describe_tokenizer(const tokenizer::Tokenizer& tokenizer);

}  // namespace quintet::tools
