// What is wrong with a recipe: all of it at once.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace quintet::config {

struct Problem {
  std::string key;      // dotted, "parallel.tp"
  std::string rule;     // the broken rule, with its numbers
  std::string nearest;  // the nearest legal value or key; empty when there is none to offer
  std::string name;     // of the rule: "type", "limits", "unknown key", or a row of validate.h's rule_names()
  int line = 0;         // in the recipe file; 0 when the value is not from the file
};

// "key (line n): rule; nearest: ..."
std::string to_string(const Problem& problem);

// The message lists every problem on a line of its own.
class RecipeError : public base::UserError {
 public:
  RecipeError(const std::string& source, std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace quintet::config
