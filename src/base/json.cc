#include "base/json.h"

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

std::string json_text(const nlohmann::ordered_json& value, int levels) {
  std::string out;
  append(out, value, 0, levels);
  return out;
}

}  // namespace quintet::base
