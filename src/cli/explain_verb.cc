#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "cli/verbs.h"
#include "config/codes.h"

namespace quintet::cli {
namespace {

struct ExplainOptions {
  std::string code;
  bool json = false, markdown = false;
};

nlohmann::ordered_json json_of(const config::ProblemCode& c) {
  return {{"code", c.code},   {"rule", c.rule}, {"cause", c.cause},
          {"example", c.bad}, {"fix", c.fix},   {"remedy", c.remedy}};
}

int list_codes(bool json) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  for (const config::ProblemCode& c : config::problem_codes()) {
    all.push_back(json_of(c));
    text += fmt::format("{}  {}\n", c.code, c.rule);
  }
  json ? print(base::json_text(all, 2) + "\n") : print_report(text);
  return kExitGood;
}

int explain_action(const ExplainOptions& o) {
  if (o.markdown) {
    print(config::codes_markdown());
    return kExitGood;
  }
  if (o.code.empty()) return list_codes(o.json);
  const config::ProblemCode* code = config::find_code(o.code);
  if (code == nullptr)
    base::fail_user("there is no code {}; codes look like {}, and 'quintet explain' lists them", o.code,
                    config::problem_codes().front().code);
  o.json ? print(base::json_text(json_of(*code), 2) + "\n") : print_report(config::explain(*code));
  return kExitGood;
}

}  // namespace

Verb add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "explain an error by its code: cause, example and fix");
  auto o = std::make_shared<ExplainOptions>();
  command->add_option("CODE", o->code,
                      "the code in brackets at the end of a message, e.g. Q1210; none: all codes");
  command->add_flag("--json", o->json, "print JSON");
  command->add_flag("--markdown", o->markdown, "print docs/errors.md")
      ->excludes(command->get_option("CODE"))
      ->excludes(command->get_option("--json"));
  return {command, [o] { return explain_action(*o); }};
}

}  // namespace quintet::cli
