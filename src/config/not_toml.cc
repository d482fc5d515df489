#include "config/not_toml.h"

#include <algorithm>

namespace quintet::config {

std::string likely_cause(std::string_view text, std::string_view reason) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return "the file is UTF-16: save it as UTF-8";
  if (reason.find("utf-8") != std::string_view::npos) return "the file is not UTF-8: save it as UTF-8";
  if (text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size())).starts_with('{'))
    return "the file looks like JSON; a recipe is TOML: [section] and key = value";
  if (reason.find("expected '=', saw ':'") != std::string_view::npos)
    return "the file looks like YAML; a recipe is TOML: [section] and key = value";
  if (reason.find("parsing string: unescaped control") != std::string_view::npos)
    return "the string has no closing quote on its line";
  return {};
}

namespace {

// The end of the string or comment that begins at `at`.
size_t end_of_text(std::string_view text, size_t at) {
  if (text[at] == '#') return std::min(text.find('\n', at), text.size());
  const std::string_view quote = text.substr(at, 1);
  const std::string three(3, quote[0]);
  const bool many_lines = text.substr(at).starts_with(three);
  const std::string_view end = many_lines ? std::string_view(three) : quote;
  for (size_t i = at + end.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == "\"")
      ++i;
    else if (text.substr(i).starts_with(end))
      return i + end.size();
    else if (text[i] == '\n' && !many_lines)
      return i;
  }
  return text.size();
}

}  // namespace

int most_key_parts(std::string_view text) {
  int most = 0, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'' || c == '#') {
      i = end_of_text(text, i);
      continue;
    }
    if (c == '.')
      most = std::max(most, ++dots);
    else if (std::string_view("=\n[]{},").find(c) != std::string_view::npos)
      dots = 0;
    ++i;
  }
  return most + 1;
}

}  // namespace quintet::config
