// Fields of the untrusted JSON of a tokenizer file: a missing or mistyped one is a UserError that says where.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"

namespace quintet::tokenizer {

using Json = nlohmann::json;

template <class T>
T json_as(const Json& value, std::string_view where) {
  try {
    return value.get<T>();
  } catch (const Json::exception&) {
    base::fail_user(
        "tokenizer file: {} is {}, which is not what belongs there", where,
        base::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
  }
}

template <class T>
T json_field(const Json& object, const char* key, std::string_view where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) base::fail_user("tokenizer file: {} has no \"{}\"", where, key);
  return json_as<T>(*found, std::string(where) + "." + key);
}

// null counts as missing.
template <class T>
T json_field_or(const Json& object, const char* key, T fallback, std::string_view where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || found->is_null()) return fallback;
  return json_as<T>(*found, std::string(where) + "." + key);
}

// A list; missing and null are an empty one.
inline const Json& json_list(const Json& object, const char* key, std::string_view where) {
  static const Json empty = Json::array();
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || found->is_null()) return empty;
  if (!found->is_array()) base::fail_user("tokenizer file: {}.{} is not a list", where, key);
  return *found;
}

// The "pattern" of a Split or Replace: {"String": s} or {"Regex": s}.
struct JsonPattern {
  bool regex = false;
  std::string text;
};
inline JsonPattern json_pattern(const Json& object, std::string_view where) {
  const Json pattern = json_field<Json>(object, "pattern", where);
  if (pattern.is_object() && pattern.contains("Regex"))
    return {true, json_field<std::string>(pattern, "Regex", where)};
  return {false, json_field<std::string>(pattern, "String", where)};
}

}  // namespace quintet::tokenizer
