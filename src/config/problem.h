// The problems of a recipe, all reported at once.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace quintet::config {

struct Problem {
  std::string key;      // dotted: "parallel.tp"
  std::string rule;     // what is wrong, with the values seen
  std::string nearest;  // the nearest legal value or key; empty when there is no suggestion
  std::string name;     // of the rule: "type", "limits", "unknown key", or one of rule_names() (validate.h)
  int line = 0;         // in the recipe file; 0 when the value does not come from the file
};

// "key (line n): rule; nearest: ..."
std::string to_string(const Problem& problem);

// The message lists one problem per line.
class RecipeError : public base::UserError {
 public:
  RecipeError(const std::string& source, std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace quintet::config
