// Training of a byte-level BPE tokenizer from text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/word_patterns.h"

namespace quintet::tokenizer {

// The words of a text with their numbers: all that training needs to know of it.
class WordCounts {
 public:
  explicit WordCounts(const WordPattern& pattern) : pattern_(pattern) {}
  void add(std::string_view text);
  void add(const WordCounts& other);
  int64_t bytes() const { return bytes_; }
  const std::unordered_map<std::string, int64_t>& words() const { return words_; }

 private:
  WordPattern pattern_;
  std::unordered_map<std::string, int64_t> words_;
  int64_t bytes_ = 0;
};

struct TrainOptions {
  int32_t vocab_size = 0;            // special tokens and 256 bytes included
  std::vector<std::string> special;  // get the first ids
  std::string_view expression;       // that splits text; must be known to known_pattern()
};

// Joins the most frequent pair of neighbours again and again; of equally frequent ones the pair with the
// smallest ids, so that the result depends on the counts alone, and equals that of the `tokenizers`
// package. Returns the text of a tokenizer.json. It has fewer tokens than asked for when the words hold no
// more pairs. UserError when vocab_size has no room for bytes and special tokens.
std::string train_bpe(const WordCounts& counts, const TrainOptions& options);

}  // namespace quintet::tokenizer
