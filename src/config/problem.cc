#include "config/problem.h"

#include <algorithm>

namespace quintet::config {
namespace {

std::string message_of(const std::string& source, const std::vector<Problem>& problems) {
  std::string text =
      fmt::format("{}: {} {}", source, problems.size(), problems.size() == 1 ? "problem" : "problems");
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i)
    text += "\n  " + to_string(problems[i]);
  if (problems.size() > kMaxProblems) text += fmt::format("\n  and {} more", problems.size() - kMaxProblems);
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
    : base::UserError(message_of(source, problems)), problems_(std::move(problems)) {
  if (problems_.size() <= kMaxProblems) return;
  left_out_ = problems_.size() - kMaxProblems;
  problems_.resize(kMaxProblems);
}

}  // namespace quintet::config
