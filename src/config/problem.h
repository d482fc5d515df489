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
  std::string
      name;  // of the rule: "values have the type of their key", "numbers are within limits", "every key is known", or one of rule_names() (validate.h)
  int line = 0;  // in the recipe file; 0 when the value does not come from the file
  // Where on that line the value is (an unknown key: the key), 1-based in characters, and the line's text.
  int column = 0, columns = 0;
  std::string source = {};
};

// "key (line n): rule; nearest: ... [Q1302]"
std::string to_string(const Problem& problem);

// The line of the recipe with a caret under the value, each with a newline; empty when it has no line.
//   12 | tp = 3
//      |      ^
std::string excerpt(const Problem& problem);

// Problems beyond this many are counted, not listed: a file of another kind has a problem in every line.
inline constexpr size_t kMaxProblems = 50;

// The message lists one problem per line, each followed by its excerpt.
class RecipeError : public base::UserError {
 public:
  RecipeError(const std::string& source, std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }  // at most kMaxProblems
  size_t left_out() const { return left_out_; }

 private:
  std::vector<Problem> problems_;
  size_t left_out_ = 0;
};

}  // namespace quintet::config
