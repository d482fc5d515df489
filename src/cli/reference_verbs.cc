// The verbs that describe the tool and its recipes: recipe, completion, man.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command_tree.h"
#include "cli/verbs.h"
#include "config/key_docs.h"
#include "config/unsupported.h"

namespace quintet::cli {
namespace {

struct RecipeDocOptions {
  std::string key;
  bool markdown = false, json = false;
};

nlohmann::ordered_json json_of(const config::KeyFacts& k) {
  return {{"key", k.key},          {"type", k.type},       {"limits", k.limits},  {"words", k.words},
          {"default", k.fallback}, {"meaning", k.meaning}, {"example", k.example}};
}

// Keys that begin with a section's name, or the one key.
std::vector<const config::KeyFacts*> chosen_keys(const std::string& key) {
  std::vector<const config::KeyFacts*> chosen;
  std::vector<std::string> names;
  for (const config::KeyFacts& k : config::recipe_keys()) {
    names.push_back(k.key);
    if (key.empty() || k.key == key || k.key.starts_with(key + ".")) chosen.push_back(&k);
  }
  if (!chosen.empty()) return chosen;
  if (const std::string_view answer = config::answer_elsewhere(key); !answer.empty())
    base::fail_user("there is no recipe key '{}': {}", key, answer);
  std::string near(config::key_elsewhere(key));
  if (near.empty()) near = base::nearest_word(key, names).value_or("");
  base::fail_user("there is no recipe key or section '{}'{}; 'quintet recipe' lists all keys", key,
                  near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
}

int recipe_action(const RecipeDocOptions& o) {
  if (o.markdown) {
    print(config::recipe_markdown());
    return kExitGood;
  }
  const auto keys = chosen_keys(o.key);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  for (const config::KeyFacts* k : keys) {
    all.push_back(json_of(*k));
    text += o.key.empty() ? k->key + "\n" : (text.empty() ? "" : "\n") + config::describe(*k);
  }
  o.json ? print(base::json_text(all, 3) + "\n") : print_report(text);
  return kExitGood;
}

struct ManOptions {
  std::string page, folder;
};

void write_pages(const std::vector<CommandInfo>& commands, const base::Path& folder) {
  const auto write = [&](const char* section, const std::string& name, const std::string& text) {
    base::make_directories(folder / section);
    base::write_file_atomically(folder / section / name, text);
  };
  for (const CommandInfo& c : commands) {
    std::string name = c.name.empty() ? "quintet.1" : "quintet-" + c.name + ".1";
    for (char& letter : name) letter = letter == ' ' ? '-' : letter;
    write("man1", name, man_page(commands, c.name));
  }
  write("man5", "quintet-recipe.5", recipe_man_page());
}

int man_action(const ManOptions& o, const CLI::App& app) {
  const std::vector<CommandInfo> commands = command_tree(app);
  if (!o.folder.empty()) {
    write_pages(commands, o.folder);
    return kExitGood;
  }
  const std::string text = o.page == "recipe.5" ? recipe_man_page() : man_page(commands, o.page);
  if (text.empty())
    base::fail_user(
        "there is no page '{}': give a verb, recipe.5 for the keys of recipes, or nothing for the tool",
        o.page);
  print(text);
  return kExitGood;
}

}  // namespace

Verb add_recipe(CLI::App& app) {
  CLI::App* command = app.add_subcommand("recipe", "describe recipe keys: type, default, meaning, example");
  auto o = std::make_shared<RecipeDocOptions>();
  command->add_option("KEY", o->key, "a key (parallel.tp) or a section (parallel); none: list all keys");
  command->add_flag("--json", o->json, "print JSON");
  command->add_flag("--markdown", o->markdown, "print docs/recipe.md")
      ->excludes(command->get_option("KEY"))
      ->excludes(command->get_option("--json"));
  return {command, [o] { return recipe_action(*o); }};
}

Verb add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "print the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "bash: source <(quintet completion bash)\n"
      "zsh:  quintet completion zsh > \"${fpath[1]}/_quintet\"\n"
      "fish: quintet completion fish > ~/.config/fish/completions/quintet.fish\n"
      "'make install' installs all three.");
  return {command, [shell, &app] {
            print(completion_script(command_tree(app), *shell));
            return kExitGood;
          }};
}

Verb add_man(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "print a manual page: quintet man train | man -l -");
  auto o = std::make_shared<ManOptions>();
  command->add_option("PAGE", o->page, "a verb, or recipe.5 for the keys of recipes; none: the tool");
  command->add_option("--write", o->folder, "write all pages below this folder, as man1/ and man5/")
      ->type_name("FOLDER")
      ->excludes(command->get_option("PAGE"));
  return {command, [o, &app] { return man_action(*o, app); }};
}

}  // namespace quintet::cli
