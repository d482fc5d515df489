// Completion scripts. They contain all words, so that completing starts no process.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/command_tree.h"
#include "config/key_docs.h"

namespace quintet::cli {
namespace {

using Takes = OptionInfo::Takes;

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::vector<std::string> names_below(const std::vector<CommandInfo>& commands, const std::string& parent) {
  const std::string prefix = parent.empty() ? "" : parent + " ";
  std::vector<std::string> names;
  for (const CommandInfo& c : commands)
    if (!c.name.empty() && c.name.starts_with(prefix))
      if (const std::string rest = c.name.substr(prefix.size()); rest.find(' ') == std::string::npos)
        names.push_back(rest);
  return names;
}

std::vector<std::string> option_names(const CommandInfo& c) {
  std::vector<std::string> names;
  for (const OptionInfo& o : c.options)
    if (!o.positional) names.insert(names.end(), o.names.begin(), o.names.end());
  return names;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const config::KeyFacts& k : config::recipe_keys()) names.push_back(k.key);
  return names;
}

// The words that a key takes after "=".
std::vector<std::string> value_words(const config::KeyFacts& k) {
  if (k.type == "true or false") return {"true", "false"};
  return k.words;
}

// ---- bash

// The action that completes a value.
std::string bash_action(const OptionInfo& o) {
  switch (o.takes) {
    case Takes::Words:
      return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", joined(o.words));
    case Takes::File:
      return "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\"))";
    case Takes::Folder:
      return "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- \"$cur\"))";
    case Takes::RecipeKey:
      return "compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W \"$keys\" -S = -- \"$cur\"))";
    case Takes::Text:
    case Takes::Nothing:
      break;
  }
  return "COMPREPLY=()";
}

std::string bash_script(const std::vector<CommandInfo>& commands) {
  std::string text = fmt::format(R"(# bash completion of quintet; written by 'quintet completion bash'
_quintet() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= i
  local keys='{}'
  COMPREPLY=()
  # '=' is a word of its own: --set KEY = VALUE.
  if [[ $cur == '=' ]]; then
    _quintet_value "$prev" ''
    return
  elif [[ $prev == '=' ]]; then
    _quintet_value "${{COMP_WORDS[COMP_CWORD-2]}}" "$cur"
    return
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${{COMP_WORDS[i]}}" in
)",
                                 joined(key_names()));
  for (const CommandInfo& c : commands)
    if (!c.name.empty()) {
      const size_t space = c.name.rfind(' ');
      const std::string parent = space == std::string::npos ? "" : c.name.substr(0, space);
      text += fmt::format("      '{} {}') command='{}' ;;\n", parent,
                          c.name.substr(space == std::string::npos ? 0 : space + 1), c.name);
    }
  text += "    esac\n  done\n  case \"$command $prev\" in\n";
  for (const CommandInfo& c : commands)
    for (const OptionInfo& o : c.options)
      if (!o.positional && o.takes != Takes::Nothing) {
        std::vector<std::string> patterns;
        for (const std::string& name : o.names) patterns.push_back(fmt::format("'{} {}'", c.name, name));
        text += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), bash_action(o));
      }
  text += "  esac\n  if [[ $cur == -* ]]; then\n    case \"$command\" in\n";
  for (const CommandInfo& c : commands)
    text += fmt::format("      '{}') COMPREPLY=($(compgen -W '{}' -- \"$cur\")) ;;\n", c.name,
                        joined(option_names(c)));
  text += "    esac\n    return\n  fi\n  case \"$command\" in\n";
  for (const CommandInfo& c : commands) {
    const std::vector<std::string> below = names_below(commands, c.name);
    const auto positional =
        std::find_if(c.options.begin(), c.options.end(), [](const OptionInfo& o) { return o.positional; });
    if (!below.empty())
      text += fmt::format("    '{}') COMPREPLY=($(compgen -W '{}' -- \"$cur\")) ;;\n", c.name, joined(below));
    else if (positional != c.options.end())
      text += fmt::format("    '{}') {} ;;\n", c.name, bash_action(*positional));
  }
  text += "  esac\n}\n_quintet_value() {\n  case \"$1\" in\n";
  for (const config::KeyFacts& k : config::recipe_keys())
    if (const auto words = value_words(k); !words.empty())
      text += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$2\")) ;;\n", k.key, joined(words));
  return text + "  esac\n}\ncomplete -F _quintet quintet\n";
}

// ---- zsh

std::string zsh_quoted(std::string_view text, bool brackets) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == ':' || (brackets && (c == '[' || c == ']')))
      out += fmt::format("\\{}", c);
    else if (c != '\n')
      out += c;
    else
      out += ' ';
  }
  return out;
}

std::string zsh_value(const OptionInfo& o) {
  const std::string label = o.positional ? o.names.front() : o.value;
  switch (o.takes) {
    case Takes::Words:
      return fmt::format(":{}:({})", label, joined(o.words));
    case Takes::File:
      return fmt::format(":{}:_files", label);
    case Takes::Folder:
      return fmt::format(":{}:_files -/", label);
    case Takes::RecipeKey:
      return fmt::format(":{}:_quintet_keys", label);
    case Takes::Text:
      return fmt::format(":{}: ", label);
    case Takes::Nothing:
      break;
  }
  return "";
}

std::string zsh_arguments(const CommandInfo& c) {
  std::string text;
  int place = 0;
  for (const OptionInfo& o : c.options) {
    if (o.positional) {
      text += fmt::format(" \\\n    '{}{}'", ++place, zsh_value(o));
      continue;
    }
    const std::string rest = fmt::format("[{}]{}", zsh_quoted(o.help, true), zsh_value(o));
    for (const std::string& name : o.names)
      text += fmt::format(" \\\n    '{}{}{}'", o.repeatable ? "*" : "", name, rest);
  }
  return text;
}

std::string zsh_function(const std::string& name) {
  std::string out = "_quintet_" + name;
  std::replace(out.begin(), out.end(), ' ', '_');
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string zsh_script(const std::vector<CommandInfo>& commands) {
  std::string text = "#compdef quintet\n# zsh completion of quintet; written by 'quintet completion zsh'\n";
  text +=
      "_quintet_keys() {\n  if [[ $PREFIX == *=* ]]; then\n    local key=${PREFIX%%=*}\n"
      "    compset -P '*='\n    case $key in\n";
  for (const config::KeyFacts& k : config::recipe_keys())
    if (const auto words = value_words(k); !words.empty())
      text += fmt::format("      {}) compadd -- {} ;;\n", k.key, joined(words));
  text += fmt::format("    esac\n  else\n    compadd -S = -- {}\n  fi\n}}\n", joined(key_names()));
  for (const CommandInfo& c : commands) {
    const std::vector<std::string> below = names_below(commands, c.name);
    text += fmt::format("{}() {{\n", c.name.empty() ? "_quintet" : zsh_function(c.name));
    if (below.empty()) {
      text += fmt::format("  _arguments{}\n}}\n", zsh_arguments(c));
      continue;
    }
    text +=
        "  local line state\n  _arguments -C" + zsh_arguments(c) + " \\\n    '1: :->command' '*:: :->rest'\n";
    text += "  case $state in\n  command)\n    local -a commands=(\n";
    const std::string prefix = c.name.empty() ? "" : c.name + " ";
    for (const std::string& name : below)
      for (const CommandInfo& sub : commands)
        if (sub.name == prefix + name)
          text += fmt::format("      '{}:{}'\n", name, zsh_quoted(sub.help, false));
    text += "    )\n    _describe command commands ;;\n  rest)\n    case $line[1] in\n";
    for (const std::string& name : below)
      text += fmt::format("    {}) {} ;;\n", name, zsh_function(prefix + name));
    text += "    esac ;;\n  esac\n}\n";
  }
  return text + "_quintet \"$@\"\n";
}

// ---- fish

std::string fish_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string fish_script(const std::vector<CommandInfo>& commands) {
  std::string text =
      "# fish completion of quintet; written by 'quintet completion fish'\ncomplete -c quintet -f\n"
      "function __quintet_set\n  set -l token (commandline -ct)\n  switch $token\n";
  for (const config::KeyFacts& k : config::recipe_keys())
    if (const auto words = value_words(k); !words.empty())
      text += fmt::format("    case '{}=*'\n      printf '%s\\n' {}={{{}}}\n", k.key, k.key,
                          fmt::join(words, ","));
  text += fmt::format("    case '*'\n      printf '%s\\n' {}=\n  end\nend\n", fmt::join(key_names(), "= "));
  for (const CommandInfo& c : commands) {
    std::string when = "__fish_use_subcommand";
    if (!c.name.empty()) {
      when.clear();
      for (size_t at = 0; at < c.name.size();) {
        const size_t end = std::min(c.name.find(' ', at), c.name.size());
        when += fmt::format("{}__fish_seen_subcommand_from {}", when.empty() ? "" : "; and ",
                            c.name.substr(at, end - at));
        at = end + 1;
      }
    }
    const std::string prefix = c.name.empty() ? "" : c.name + " ";
    for (const std::string& name : names_below(commands, c.name))
      for (const CommandInfo& sub : commands)
        if (sub.name == prefix + name)
          text +=
              fmt::format("complete -c quintet -n '{}' -a {} -d '{}'\n", when, name, fish_quoted(sub.help));
    for (const OptionInfo& o : c.options) {
      std::string names, value;
      for (const std::string& name : o.positional ? std::vector<std::string>{} : o.names)
        names += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                        : fmt::format(" -s {}", name.substr(1));
      if (o.takes == Takes::Words) value = fmt::format(" -x -a '{}'", joined(o.words));
      if (o.takes == Takes::File) value = " -r -F";
      if (o.takes == Takes::Folder) value = " -x -a '(__fish_complete_directories)'";
      if (o.takes == Takes::RecipeKey) value = " -x -a '(__quintet_set)'";
      if (o.takes == Takes::Text) value = " -x";
      if (o.positional && o.takes == Takes::Text) continue;
      text +=
          fmt::format("complete -c quintet -n '{}'{}{} -d '{}'\n", when, names, value, fish_quoted(o.help));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const std::vector<CommandInfo>& commands, const std::string& shell) {
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  return bash_script(commands);
}

}  // namespace quintet::cli
