#include "config/codes.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "base/wrap.h"
#include "config/codes_table.h"
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

std::span<const ProblemCode> problem_codes() {
  static const std::vector<ProblemCode> all = [] {
    std::vector<ProblemCode> rows(recipe_codes().begin(), recipe_codes().end());
    rows.insert(rows.end(), error_codes().begin(), error_codes().end());
    return rows;
  }();
  return all;
}

const ProblemCode* find_code(std::string_view code) {
  // As copied from a message, with its brackets.
  while (code.starts_with('[')) code.remove_prefix(1);
  while (code.ends_with(']')) code.remove_suffix(1);
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

std::string codes_markdown() {
  struct Group {
    std::string_view prefix, title;
  };
  constexpr Group kGroups[] = {{"Q10", "The recipe file and its keys"},
                               {"Q11", "Recipe: the model"},
                               {"Q12", "Recipe: data and batches"},
                               {"Q13", "Recipe: the layout"},
                               {"Q14", "Recipe: precision"},
                               {"Q15", "Recipe: sizes and memory"},
                               {"Q16", "Recipe: optimizer"},
                               {"Q17", "Recipe: evaluation, run and checkpoints"},
                               {"Q20", "The run and the machine"},
                               {"Q21", "Files"},
                               {"Q22", "Data"},
                               {"Q23", "Tokenizers"},
                               {"Q24", "Checkpoints and run folders"},
                               {"Q25", "Files of other systems"},
                               {"Q26", "Hardware"},
                               {"Q27", "Planning"},
                               {"Q28", "Pipeline schedules"},
                               {"Q29", "Launching and devices"},
                               {"Q30", "Models and programs"},
                               {"Q90", "Failures that are not the input's fault (exit code 1)"}};
  std::string text =
      "# Error codes\n\n"
      "Every error ends with a code in brackets, such as `[Q1302]`, that keeps its meaning from version to "
      "version. `quintet explain\nCODE` prints the row of this page, and for recipes an example with its "
      "fix; "
      "`--json` errors have the code as `\"code\"`. Exit codes: 2 for\ninvalid input, 1 for failures of the "
      "last section.\n\n"
      "This page is generated: `make recipe-docs` writes it, and a test compares it.\n";
  // Angle brackets, braces and bars would be markup.
  const auto cell = [](std::string_view from) {
    std::string out;
    for (const char c : from) {
      if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  };
  for (const Group& group : kGroups) {
    text +=
        fmt::format("\n## {}\n\n| code | what holds | why, and what to do |\n|---|---|---|\n", group.title);
    for (const ProblemCode& c : problem_codes())
      if (c.code.starts_with(group.prefix))
        text += fmt::format("| `{}` | {} | {}{}{} |\n", c.code, cell(c.rule), cell(c.cause),
                            c.remedy.empty() ? "" : " ", cell(c.remedy));
  }
  return text;
}

std::string explain(const ProblemCode& c) {
  std::string text = fmt::format("{}: {}\n\n{}\n", c.code, c.rule, base::wrapped(c.cause, 78));
  if (!c.remedy.empty()) text += fmt::format("\nWhat to do: {}\n", base::wrapped(c.remedy, 78));
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

}  // namespace quintet::config
