// Man pages in the man(7) macros.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_tree.h"
#include "config/key_docs.h"

namespace quintet::cli {
namespace {

// Text in which no character is a request or an escape.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    begins = c == '\n';
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = c == ' ' ? '-' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string title(const std::string& page, int section) {
  return fmt::format(".TH \"{}\" {} \"\" \"Quintet {}\" \"Quintet\"\n", upper(page), section,
                     QUINTET_VERSION);
}

std::string page_of(const std::string& command) {
  std::string page = command.empty() ? "quintet" : "quintet-" + command;
  for (char& c : page) c = c == ' ' ? '-' : c;
  return page;
}

void add_option(const OptionInfo& o, std::string& text) {
  std::vector<std::string> names;
  for (const std::string& name : o.names)
    names.push_back(o.positional || o.value.empty()
                        ? fmt::format("\\fB{}\\fR", roff(name))
                        : fmt::format("\\fB{}\\fR \\fI{}\\fR", roff(name), roff(o.value)));
  text += fmt::format(".TP\n{}\n{}\n", fmt::join(names, ", "), roff(o.help));
  if (o.takes == OptionInfo::Takes::Words && o.words.size() <= 12)
    text += fmt::format("One of {}.\n", roff(fmt::format("{}", fmt::join(o.words, ", "))));
}

}  // namespace

std::string man_page(const std::vector<CommandInfo>& commands, const std::string& name) {
  std::string text;
  for (const CommandInfo& c : commands) {
    if (c.name != name) continue;
    const std::string page = page_of(name);
    text += title(page, 1) + fmt::format(".SH NAME\n{} \\- {}\n", roff(page), roff(c.help));
    text += fmt::format(".SH SYNOPSIS\n.B quintet {}\n", roff(name));
    if (name.empty()) text += "\\fIVERB\\fR\n";
    for (const OptionInfo& o : c.options)
      if (o.positional)
        text += o.required ? fmt::format("\\fI{}\\fR\n", roff(o.names[0]))
                           : fmt::format("[\\fI{}\\fR]\n", roff(o.names[0]));
    text += "[\\fIOPTIONS\\fR]\n";
    const std::string prefix = name.empty() ? "" : name + " ";
    std::string below;
    for (const CommandInfo& sub : commands)
      if (!sub.name.empty() && sub.name.starts_with(prefix) && sub.name != name &&
          sub.name.find(' ', prefix.size()) == std::string::npos)
        below += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_of(sub.name)), roff(sub.help));
    if (!below.empty()) text += ".SH VERBS\n" + below;
    text += ".SH OPTIONS\n";
    for (const OptionInfo& o : c.options) add_option(o, text);
    if (!c.footer.empty()) text += ".SH NOTES\n" + roff(c.footer) + "\n";
    text +=
        ".SH EXIT STATUS\n0 success, 2 invalid input, 1 any other failure; 128 + the signal number for a run "
        "that a signal stopped.\n";
    text += ".SH SEE ALSO\n";
    text +=
        name.empty() ? "\\fBquintet\\-recipe\\fR(5)\n" : "\\fBquintet\\fR(1), \\fBquintet\\-recipe\\fR(5)\n";
  }
  return text;
}

std::string recipe_man_page() {
  std::string text = title("quintet-recipe", 5);
  text +=
      ".SH NAME\nquintet\\-recipe \\- the recipe of a training run, a TOML file\n.SH DESCRIPTION\n"
      "Every key, with its type, limits and default. \\fBquintet init\\fR writes a commented recipe, "
      "\\fBquintet check\\fR reports all problems of one, and \\fB\\-\\-set KEY=VALUE\\fR changes a key on "
      "the "
      "command line.\n";
  std::string open = "-";
  for (const config::KeyFacts& k : config::recipe_keys()) {
    if (k.section() != open) {
      open = k.section();
      text += fmt::format(".SH {}\n", open.empty() ? "TOP LEVEL" : roff("[" + open + "]"));
      for (const config::SectionDoc& s : config::section_docs())
        if (s.section == open) text += roff(s.meaning) + "\n";
    }
    const std::string type = k.words.empty() ? k.type : fmt::format("\"{}\"", fmt::join(k.words, "\", \""));
    text += fmt::format(".TP\n\\fB{}\\fR = {}\n{}\n.br\nType: {}{}. Default: {}.\n", roff(k.name()),
                        roff(k.example), roff(k.meaning), roff(type),
                        k.limits.empty() ? "" : roff(", " + k.limits), roff(k.fallback));
  }
  return text + ".SH SEE ALSO\n\\fBquintet\\fR(1)\n";
}

}  // namespace quintet::cli
