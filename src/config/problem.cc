#include "config/problem.h"

namespace quintet::config {
namespace {

std::string message_of(const std::string& source, const std::vector<Problem>& problems) {
  std::string text =
      fmt::format("{}: {} {}", source, problems.size(), problems.size() == 1 ? "problem" : "problems");
  for (const Problem& problem : problems) text += "\n  " + to_string(problem);
  return text;
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string text = problem.key;
  if (problem.line > 0) text += fmt::format(" (line {})", problem.line);
  text += ": " + problem.rule;
  if (!problem.nearest.empty()) text += "; nearest: " + problem.nearest;
  return text;
}

RecipeError::RecipeError(const std::string& source, std::vector<Problem> problems)
    : base::UserError(message_of(source, problems)), problems_(std::move(problems)) {}

}  // namespace quintet::config
