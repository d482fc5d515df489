#include "cli/command_tree.h"

#include <algorithm>

#include "compiler/optional_passes.h"
#include "config/codes.h"
#include "config/key_docs.h"
#include "config/presets.h"

namespace quintet::cli {
namespace {

// CLI11 describes a set of words as "{a,b}".
std::vector<std::string> words_of(const std::string& text) {
  const size_t open = text.find('{'), close = text.find('}');
  std::vector<std::string> words;
  if (open == std::string::npos || close == std::string::npos || close < open) return words;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(text.find(',', at), close);
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Words of values that have a list of their own.
std::vector<std::string> known_words(const std::string& command, const std::string& name) {
  std::vector<std::string> words;
  if (name == "--model")
    for (const config::Model& m : config::presets()) words.push_back(m.preset);
  if (name == "--disable-pass")
    for (const compiler::OptionalPass pass : compiler::optional_passes())
      words.emplace_back(compiler::to_string(pass));
  if (command == "explain" && name == "CODE")
    for (const config::ProblemCode& c : config::problem_codes()) words.emplace_back(c.code);
  if (command == "recipe" && name == "KEY")
    for (const config::KeyFacts& k : config::recipe_keys()) words.push_back(k.key);
  return words;
}

OptionInfo::Takes takes_of(const OptionInfo& o) {
  using Takes = OptionInfo::Takes;
  const std::string& name = o.names.front();
  if (!o.words.empty()) return Takes::Words;
  if (name == "--set") return Takes::RecipeKey;
  if (o.value == "FOLDER" || o.value == "DIR" || name == "RUN_FOLDER" || name == "RUN") return Takes::Folder;
  for (const char* file : {"FILE", "FILE.toml", "RECIPE", "CLUSTER"})
    if (o.value == file || name == file) return Takes::File;
  if (name == "--cluster" || name == "--data") return Takes::File;
  return o.value.empty() ? Takes::Nothing : Takes::Text;
}

OptionInfo info_of(const std::string& command, const CLI::Option& option) {
  OptionInfo o;
  o.positional = option.get_positional();
  if (o.positional) o.names = {option.get_name()};
  for (const std::string& name : option.get_lnames()) o.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) o.names.push_back("-" + name);
  o.help = option.get_description();
  o.required = option.get_required();
  o.words = words_of(option.get_type_name());
  if (o.words.empty()) o.words = known_words(command, o.names.front());
  const bool flag = option.get_items_expected_max() == 0;
  const std::string type = option.get_type_name();
  if (!flag && !o.positional)
    o.value = type.find('{') != std::string::npos || type == "TEXT" ? "VALUE"
              : type.empty()                                        ? "VALUE"
                                                                    : type.substr(0, type.find(':'));
  o.repeatable = o.help.find("repeatable") != std::string::npos;
  o.takes = takes_of(o);
  if (o.positional && o.takes == OptionInfo::Takes::Nothing) o.takes = OptionInfo::Takes::Text;
  return o;
}

void add(const CLI::App& app, const std::string& name, std::vector<CommandInfo>& out) {
  CommandInfo command{.name = name, .help = app.get_description(), .footer = app.get_footer(), .options = {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    command.options.push_back(info_of(name, *option));
  out.push_back(std::move(command));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    add(*sub, name.empty() ? sub->get_name() : name + " " + sub->get_name(), out);
}

}  // namespace

std::vector<CommandInfo> command_tree(const CLI::App& app) {
  std::vector<CommandInfo> commands;
  add(app, "", commands);
  return commands;
}

}  // namespace quintet::cli
