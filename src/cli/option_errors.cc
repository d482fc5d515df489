#include "cli/option_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "config/key_docs.h"
#include "config/unsupported.h"

namespace quintet::cli {
namespace {

// An option named as a recipe key, here ("--lr") or in another system ("--tensor-model-parallel-size"). Empty
// for others, and for verbs without recipes.
std::string key_of_option(const CLI::App& command, const std::string& name) {
  if (command.get_option_no_throw("--set") == nullptr || !name.starts_with("--")) return {};
  std::string word = name.substr(2);
  std::replace(word.begin(), word.end(), '-', '_');
  std::string key(config::key_elsewhere(word));
  if (key.empty()) {
    const auto is_meant = [&](const config::KeyFacts& k) { return k.name() == word; };
    const auto& keys = config::recipe_keys();
    const auto found = std::ranges::find_if(keys, is_meant);
    if (found != keys.end() && std::ranges::count_if(keys, is_meant) == 1) key = found->key;
  }
  if (!key.empty()) return fmt::format("did you mean '--set {}=VALUE'?", key);
  return std::string(config::answer_elsewhere(word));
}

}  // namespace

std::string unknown_option(const CLI::App& command, int argc, char** argv) {
  for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {
    const std::string_view word = argv[i];
    const std::string name(word.substr(0, word.find('=')));
    const bool is_option = name.size() > 1 && name[0] == '-' && (name[1] < '0' || name[1] > '9');
    if (!is_option || name == "-h" || name == "--help" || command.get_option_no_throw(name) != nullptr)
      continue;
    if (const std::string key = key_of_option(command, name); !key.empty())
      return fmt::format("unknown option '{}', {}", base::printable(name), key);
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
      for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
    const std::string whole = name.starts_with("--") ? name : "-" + name;
    auto nearest = base::nearest_word(whole, names);
    for (const std::string& known : names)
      if (known.starts_with(whole)) nearest = known;
    return fmt::format("unknown option '{}'{}", base::printable(name),
                       nearest ? fmt::format(", did you mean '{}'?", *nearest) : "");
  }
  return {};
}

std::string plain_words(const CLI::ParseError& error) {
  const std::string text = base::printable(error.what());
  const auto after = [&](std::string_view part) {
    const size_t at = text.find(part);
    return at == std::string::npos ? std::string() : text.substr(at + part.size());
  };
  if (std::string extra = after("not expected: "); !extra.empty()) {
    if (const size_t space = extra.rfind(' '); space != std::string::npos)
      extra = extra.substr(space + 1);  // the list begins with the last one
    return fmt::format("unexpected argument '{}'", extra);
  }
  const std::string name = text.substr(0, text.find(": "));
  if (error.get_name() == "ArgumentMismatch") {
    if (const std::string most = after(": At Most "); !most.empty())
      return fmt::format("{}: takes at most {}, got {}", name, most.substr(0, most.find(' ')),
                         after("received "));
    if (text.ends_with(" missing")) return name + " needs a value";
  }
  if (const std::string list = after(" not in {"); error.get_name() == "ValidationError" && !list.empty()) {
    std::string words;
    for (const char c : list.substr(0, list.size() - 1)) words += c == ',' ? ", " : std::string(1, c);
    const size_t begin = name.size() + 2;
    return fmt::format("{}: must be {}{}, got '{}'", name,
                       words.find(',') == std::string::npos ? "" : "one of ", words,
                       text.substr(begin, text.find(" not in {") - begin));
  }
  return text;
}

}  // namespace quintet::cli
