// A small Llama for tests that need a legal recipe: they set only the keys that matter to them.
#pragma once

#include <string>
#include <vector>

#include "config/parse.h"

namespace quintet::test {

inline constexpr const char* kSmallRecipe = R"(name = "small"
[model]
family = "llama"
layers = 2
embed = 16
ffn = 48
heads = 4
kv_heads = 2
[data]
seq_len = 32
[batch]
micro = 1
[optimizer]
lr = 1e-3
[run]
steps = 1
)";

// `own` are the settings of a test file, `sets` those of one test.
inline config::Recipe small_recipe(std::vector<std::string> own, const std::vector<std::string>& sets = {}) {
  own.insert(own.end(), sets.begin(), sets.end());
  return config::parse(kSmallRecipe, own);
}

}  // namespace quintet::test
