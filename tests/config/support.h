// Shared by the config tests: a legal recipe to break, and helpers to inspect the problems.
#pragma once

#include <string>
#include <vector>

#include "config/codes.h"
#include "config/parse.h"

namespace quintet::config {

// A legal recipe; tests break it with overrides.
inline const std::string kGood = "\n" + std::string(example_recipe());

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
