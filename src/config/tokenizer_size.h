// How many ids the tokenizer of a recipe has.
#pragma once

#include <cstdint>
#include <string>

namespace quintet::config {

struct TokenizerSize {
  int64_t ids = 0;    // 0: it cannot be loaded
  std::string error;  // why not
};

// Reads the tokenizer's file the first time; rules ask several times, and files of tens of megabytes are
// common.
TokenizerSize tokenizer_size(const std::string& name_or_path);

}  // namespace quintet::config
