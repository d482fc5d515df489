#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace quintet::base {
namespace {

std::string scalar(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void append(std::string& out, const nlohmann::ordered_json& value, int depth, int levels) {
  if (!value.is_structured() || value.empty()) {
    out += scalar(value);
    return;
  }
  const auto separate = [&](const char* comma, int indent) {
    out += comma;
    if (depth < levels)
      out.append(1, '\n').append(2 * static_cast<size_t>(indent), ' ');
    else if (*comma != '\0')
      out += ' ';
  };
  out += value.is_object() ? '{' : '[';
  const char* comma = "";
  for (auto item = value.begin(); item != value.end(); ++item) {
    separate(comma, depth + 1);
    if (value.is_object()) out += scalar(item.key()) + ": ";
    append(out, *item, depth + 1, levels);
    comma = ",";
  }
  separate("", depth);
  out += value.is_object() ? '}' : ']';
}

}  // namespace

bool nests_too_deep(std::string_view json) {
  const auto opens = [](char c) { return c == '[' || c == '{'; };
  if (std::ranges::count_if(json, opens) <= kJsonDepth) return false;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text && c == '\\')
      ++i;
    else if (c == '"')
      in_text = !in_text;
    else if (in_text)
      continue;
    else if (opens(c) && ++depth > kJsonDepth)
      return true;
    else if (c == ']' || c == '}')
      --depth;
  }
  return false;
}

nlohmann::json parse_json(std::string_view text) {
  if (nests_too_deep(text)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  if (nests_too_deep(text)) return nlohmann::ordered_json::value_t::discarded;
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

std::string json_fault(std::string_view text) {
  if (nests_too_deep(text)) return fmt::format("JSON that nests deeper than {} levels", kJsonDepth);
  try {
    [[maybe_unused]] const auto parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing ... -
    // REASON; last read: 'all that was read of a token'; expected ..."
    const std::string_view what = error.what();
    const size_t dash = what.find(" - "), begin = dash == std::string_view::npos ? what.size() : dash + 3;
    const std::string_view reason = what.substr(begin, what.find("; last read", begin) - begin);
    if (!reason.empty()) return fmt::format("not valid JSON (byte {}: {})", error.byte, reason);
  }
  return "not valid JSON";
}

std::string json_text(const nlohmann::ordered_json& value, int levels) {
  std::string out;
  append(out, value, 0, levels);
  return out;
}

}  // namespace quintet::base
