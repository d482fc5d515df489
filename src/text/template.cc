#include "text/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace quintet::text {

const nlohmann::json* value_at(const nlohmann::json& object, const std::string& path) {
  if (!object.is_object()) return nullptr;
  if (const auto found = object.find(path); found != object.end()) return &*found;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const auto outer = object.find(path.substr(0, dot));
    if (outer == object.end()) continue;
    if (const auto* inner = value_at(*outer, path.substr(dot + 1))) return inner;
  }
  return nullptr;
}

Template::Template(std::string_view spelled) {
  parts_.emplace_back();
  const auto fail = [&](size_t at, std::string_view what) {
    base::fail_user(
        "the template '{}' is not valid at character {}: {}; expected text with fields in braces, "
        "such as \"{{title}}\\n{{body}}\"",
        base::printable(spelled), at + 1, what);
  };
  bool any = false;
  for (size_t at = 0; at < spelled.size(); ++at) {
    const char c = spelled[at];
    const char next = at + 1 < spelled.size() ? spelled[at + 1] : '\0';
    if ((c == '{' || c == '}') && next == c) {
      parts_.back().literal += c;
      ++at;
    } else if (c == '{') {
      const size_t end = spelled.find_first_of("{}", at + 1);
      if (end == std::string_view::npos || spelled[end] != '}') fail(at, "'{' has no '}' ('{{' is a brace)");
      if (end == at + 1) fail(at, "there is no name between the braces");
      parts_.back().field = spelled.substr(at + 1, end - at - 1);
      parts_.back().has_field = any = true;
      parts_.emplace_back();
      at = end;
    } else if (c == '}') {
      fail(at, "'}' has no '{' ('}}' is a brace)");
    } else if (c == '\\') {
      const size_t which = std::string_view("ntr\\").find(next);
      if (next == '\0' || which == std::string_view::npos) fail(at, "only \\n, \\t, \\r and \\\\ are known");
      parts_.back().literal += "\n\t\r\\"[which];
      ++at;
    } else {
      parts_.back().literal += c;
    }
  }
  if (!any)
    base::fail_user("the template '{}' names no field; expected one in braces, such as \"{{text}}\"",
                    base::printable(spelled));
}

Template Template::of_field(const std::string& name) {
  Template out;
  out.parts_ = {{"", name, true}};
  out.only_strings_ = true;
  return out;
}

bool Template::render(const nlohmann::json& object, std::string& out) const {
  out.clear();
  if (!object.is_object()) {
    out = "not a JSON object";
    return false;
  }
  for (const Part& part : parts_) {
    out += part.literal;
    if (!part.has_field) continue;
    const auto* value = value_at(object, part.field);
    if (value != nullptr && value->is_string()) {
      out += value->get_ref<const std::string&>();
    } else if (value != nullptr && !only_strings_ && (value->is_number() || value->is_boolean())) {
      out += value->dump();
    } else if (value == nullptr) {
      std::string names;
      for (const auto& [key, ignored] : object.items())
        if (names.size() < 80) names += (names.empty() ? "" : ", ") + base::printable(key);
      out = fmt::format("no field \"{}\"; the fields are: {}", base::printable(part.field),
                        names.empty() ? "none" : names);
      return false;
    } else {
      out =
          fmt::format("the field \"{}\" has the type {}, but must be a string{}", base::printable(part.field),
                      value->type_name(), only_strings_ ? "" : ", a number or true or false");
      return false;
    }
  }
  return true;
}

std::vector<std::string> Template::fields() const {
  std::vector<std::string> names;
  for (const Part& part : parts_)
    if (part.has_field) names.push_back(part.field);
  return names;
}

}  // namespace quintet::text
