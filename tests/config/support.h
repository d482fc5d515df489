// Shared by the config tests: a legal recipe to break, and helpers to inspect the problems.
#pragma once

#include <string>
#include <vector>

#include "config/parse.h"

namespace quintet::config {

// A legal recipe; tests break it with overrides.
inline const std::string kGood = R"(
name = "good"
[model]
preset = "llama-tiny"
[data]
path = "text"
seq_len = 64
[batch]
global = 16
micro = 2
[parallel]
dp_shard = 4
zero = 3
tp = 2
[optimizer]
lr = 1e-3
[run]
steps = 100
)";

// Problems of kGood under the overrides; empty when it is accepted.
inline std::vector<Problem> problems_with(const std::vector<std::string>& overrides,
                                          const std::string& text = kGood) {
  try {
    parse(text, overrides);
  } catch (const RecipeError& error) {
    return error.problems();
  }
  return {};
}

}  // namespace quintet::config
