// The verbs and options of the tool as data, for completion scripts and man pages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quintet::cli {

struct OptionInfo {
  // What the value is, so that a shell can complete it.
  enum class Takes : uint8_t { Nothing, Text, Words, File, Folder, RecipeKey };
  std::vector<std::string> names;  // "--verbose", "-v"; a positional: "RECIPE"
  std::string value;               // "FILE"; empty for flags
  std::string help;
  Takes takes = Takes::Nothing;
  std::vector<std::string> words = {};  // Takes::Words
  bool positional = false, required = false, repeatable = false;
};

struct CommandInfo {
  std::string name;  // "bench step"; empty: the tool itself
  std::string help, footer;
  std::vector<OptionInfo> options;
};

// The tool, its verbs and their subcommands, in order of registration.
std::vector<CommandInfo> command_tree(const CLI::App& app);

// Scripts for shells: "bash", "zsh" or "fish".
std::string completion_script(const std::vector<CommandInfo>& commands, const std::string& shell);

// A page in the man macros. `name` is that of a command ("train"; empty: the tool), or "recipe" for the keys,
// which is in section 5.
std::string man_page(const std::vector<CommandInfo>& commands, const std::string& name);
std::string recipe_man_page();

}  // namespace quintet::cli
