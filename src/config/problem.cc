#include "config/problem.h"

#include <algorithm>

#include "base/wrap.h"
#include "config/codes.h"

namespace quintet::config {
namespace {

constexpr size_t kMaxKeyColumns = 100;  // far longer than any key of a recipe

std::string message_of(const std::string& source, const std::vector<Problem>& problems) {
  std::string text =
      fmt::format("{}: {} {}", source, problems.size(), problems.size() == 1 ? "problem" : "problems");
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    text += "\n  " + to_string(problems[i]);
    std::string lines = excerpt(problems[i]);
    // Problems of one value show its line once.
    if (i + 1 < problems.size() && problems[i].line > 0 && problems[i + 1].line == problems[i].line &&
        problems[i + 1].column == problems[i].column)
      lines.clear();
    for (size_t at = 0; at < lines.size();) {
      const size_t end = lines.find('\n', at);
      text += "\n    " + lines.substr(at, end - at);
      at = end + 1;
    }
  }
  if (problems.size() > kMaxProblems) text += fmt::format("\n  and {} more", problems.size() - kMaxProblems);
  return text;
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string text = base::shortened(problem.key, kMaxKeyColumns);
  if (problem.line > 0) text += fmt::format(" (line {})", problem.line);
  text += ": " + problem.rule;
  if (!problem.nearest.empty()) text += "; nearest: " + problem.nearest;
  if (const std::string_view code = code_of(problem.name); !code.empty()) text += fmt::format(" [{}]", code);
  return text;
}

std::string excerpt(const Problem& problem) {
  if (problem.line <= 0 || problem.column <= 0) return {};
  constexpr size_t kWidth = 60, kBefore = 30;  // of the text that is shown; columns before the value
  std::string line = problem.source;
  std::replace(line.begin(), line.end(), '\t', ' ');
  auto column = static_cast<size_t>(problem.column) - 1;
  if (base::columns_of(line) > kWidth && column > kBefore) {
    line = "..." + line.substr(base::first_columns(line, column - kBefore + 3).size());
    column = kBefore;
  }
  if (base::columns_of(line) > kWidth) line = std::string(base::first_columns(line, kWidth - 3)) + "...";
  const size_t room = kWidth > column ? kWidth - column : 1;
  const size_t carets = std::clamp<size_t>(static_cast<size_t>(std::max(1, problem.columns)), 1, room);
  const std::string number = std::to_string(problem.line);
  return fmt::format("{} | {}\n{} | {}{}\n", number, line, std::string(number.size(), ' '),
                     std::string(column, ' '), std::string(carets, '^'));
}

RecipeError::RecipeError(const std::string& source, std::vector<Problem> problems)
    : base::UserError(message_of(source, problems)), problems_(std::move(problems)) {
  if (problems_.size() <= kMaxProblems) return;
  left_out_ = problems_.size() - kMaxProblems;
  problems_.resize(kMaxProblems);
}

}  // namespace quintet::config
