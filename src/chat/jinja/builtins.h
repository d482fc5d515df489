// The names that templates may use without defining them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "chat/jinja/runtime.h"

namespace quintet::chat::jinja {

// Null if there is none.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
std::optional<Value> global_value(std::string_view name);  // a new one for each rendering
// A method of a value of this type; null if there is none.
const Builtin* find_method(const Value& value, std::string_view name);

// Whether Jinja's sandbox hides an attribute: it is then undefined.
bool is_hidden(const Value& value, std::string_view name);

// Messages for unknown names: whether Jinja has them, and the nearest that would work.
std::string unknown_filter(std::string_view name);
std::string unknown_test(std::string_view name);
// Why a name that Jinja gives a meaning cannot be used; null if it can.
const char* unsupported_global(std::string_view name);

// Parts of the tables, each in a file of its own.
std::span<const Builtin> text_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> layout_filters();
std::span<const Builtin> string_methods();
std::span<const Builtin> all_tests();

}  // namespace quintet::chat::jinja
