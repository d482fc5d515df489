// How many ids the tokenizer of a recipe has.
#pragma once

#include <cstdint>
#include <string>

#include "config/recipe.h"

namespace quintet::config {

struct TokenizerSize {
  int64_t ids = 0;    // 0: it cannot be loaded
  std::string error;  // why not
};

// Reads the tokenizer's file the first time; rules ask several times, and files of tens of megabytes are
// common.
TokenizerSize tokenizer_size(const std::string& name_or_path);

// The mask of masked language modelling with the byte tokenizer, which has no token for it.
inline constexpr int32_t kByteMask = 256;
// The number of ids that a model of the family sees with the tokenizer; 0: it cannot be loaded.
int64_t ids_needed(const std::string& name_or_path, Family family);

}  // namespace quintet::config
