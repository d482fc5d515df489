#include "config/codes.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "base/wrap.h"
#include "config/parse.h"

namespace quintet::config {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Overrides as they would be written in a recipe, indented.
std::string as_recipe(const std::vector<std::string>& overrides) {
  std::string text, open;
  for (const std::string& line : overrides) {
    const size_t equals = line.find('='), dot = line.rfind('.', equals);
    const bool top = dot == std::string::npos;
    const std::string section = top ? "" : line.substr(0, dot);
    if (section != open) text += fmt::format("    [{}]\n", section);
    open = section;
    const size_t name = top ? 0 : dot + 1;
    text += fmt::format("    {} = {}\n", line.substr(name, equals - name), line.substr(equals + 1));
  }
  return text;
}

}  // namespace

const ProblemCode* find_code(std::string_view code) {
  const std::string digits =
      base::lower_case(code.starts_with('Q') || code.starts_with('q') ? code.substr(1) : code);
  const auto codes = problem_codes();
  const auto found = std::find_if(codes.begin(), codes.end(),
                                  [&](const ProblemCode& c) { return c.code.substr(1) == digits; });
  return found == codes.end() ? nullptr : &*found;
}

std::string_view code_of(std::string_view rule) {
  for (const ProblemCode& c : problem_codes())
    if (c.rule == rule) return c.code;
  return {};
}

std::string explain(const ProblemCode& c) {
  std::string text = fmt::format("{}: {}\n\n{}\n", c.code, c.rule, base::wrapped(c.cause, 78));
  if (c.bad.empty()) return text;
  std::vector<std::string> overrides = lines_of(c.bad);
  text += "\nRefused:\n" + as_recipe(overrides);
  try {
    parse(example_recipe(), overrides);
  } catch (const RecipeError& e) {
    for (const Problem& p : e.problems())
      if (p.name == c.rule) text += fmt::format("  {}\n", base::wrapped(to_string(p), 78, 2));
  }
  if (c.fix.empty()) return text + "\nAccepted: without it\n";
  return text + "\nAccepted, with:\n" + as_recipe(lines_of(c.fix));
}

CodedError::CodedError(std::string_view rule, const std::string& message)
    : base::UserError(fmt::format("{} [{}]", message, code_of(rule))), code_(code_of(rule)) {}

}  // namespace quintet::config
