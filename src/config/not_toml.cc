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

}  // namespace quintet::config
