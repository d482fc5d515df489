// Operators, attributes and items as Python and Jinja's sandbox define them.
#pragma once

#include "chat/jinja/ast.h"
#include "chat/jinja/runtime.h"

namespace quintet::chat::jinja {

Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);
bool compare(CompareOp op, const Value& a, const Value& b);

// value.name: attributes before items. value[key]: items before attributes. What does not exist is undefined.
Value get_attribute(Runtime& runtime, const Value& value, const std::string& name);
Value get_item(Runtime& runtime, const Value& value, const Value& key);
// Null parts are absent ones.
Value get_slice(Runtime& runtime, const Value& value, const Value* begin, const Value* end,
                const Value* step);
// A path such as "function.name" or "0.id", as filters take it.
Value get_path(Runtime& runtime, Value value, const Value& path, const Value* fallback = nullptr);
// An integer argument; bool counts, other types are a fault that names `what`.
int64_t int_argument(const Value& value, std::string_view what);
const std::string& text_argument(const Value& value, std::string_view what);

// Python's printf-style `format % values`, and str.format.
std::string percent_format(Runtime& runtime, std::string_view format, const Value& values);
std::string brace_format(Runtime& runtime, std::string_view format, const Call& call);

}  // namespace quintet::chat::jinja
