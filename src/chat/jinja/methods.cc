// Methods of Python's other types, and the attributes that Jinja's sandbox or Quintet refuses.
#include <algorithm>
#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

Call after_self(const Call& call) {
  return {call.name, Values(call.args.begin() + 1, call.args.end()), call.kwargs};
}

Value dict_get(Runtime&, Call& call) {
  const auto bound = after_self(call).bind({"key", "default"}, 1);
  require_hashable(*bound[0]);
  const Value* found = find_key(call.args[0], *bound[0]);
  if (found != nullptr) return *found;
  return bound[1] ? *bound[1] : Value::none();
}

template <DictView::Of Which>
Value dict_view(Runtime&, Call& call) {
  after_self(call).bind({}, 0);
  auto view = std::make_shared<DictView>();
  view->of = Which;
  view->depth = depth_above(call.args[0]);
  view->dict = call.args[0];
  return Value::object(std::move(view));
}

Value copy_self(Runtime&, Call& call) {
  after_self(call).bind({}, 0);
  return call.args[0].is_dict() ? Value::dict(call.args[0].pairs()) : Value::list(call.args[0].items());
}

Value list_count(Runtime& runtime, Call& call) {
  const auto bound = after_self(call).bind({"value"}, 1);
  runtime.step(length_of(call.args[0]));
  const Values& items = call.args[0].items();
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, *bound[0]); }));
}

Value list_index(Runtime& runtime, Call& call) {
  const auto bound = after_self(call).bind({"value", "start", "stop"}, 1);
  runtime.step(length_of(call.args[0]));
  const int64_t length = length_of(call.args[0]);
  const auto place = [&](const std::optional<Value>& part, int64_t fallback) {
    if (!part) return fallback;
    const int64_t index = int_argument(*part, "a position");
    return index < 0 ? std::max<int64_t>(index + length, 0) : index;
  };
  const int64_t end = std::min(place(bound[2], length), length);
  for (int64_t i = place(bound[1], 0); i < end; ++i)
    if (equal(call.args[0].items()[static_cast<size_t>(i)], *bound[0])) return Value::integer(i);
  fault("{} is not in the list", repr_of(*bound[0]));
}

Value float_is_integer(Runtime&, Call& call) {
  const double value = call.args[0].as_float();
  return Value::boolean(std::isfinite(value) && std::floor(value) == value);
}

constexpr Builtin kDictMethods[] = {
    {"copy", copy_self},
    {"get", dict_get},
    {"items", dict_view<DictView::Of::Items>},
    {"keys", dict_view<DictView::Of::Keys>},
    {"values", dict_view<DictView::Of::Values>},
};
constexpr Builtin kListMethods[] = {{"copy", copy_self}, {"count", list_count}, {"index", list_index}};
constexpr Builtin kTupleMethods[] = {{"count", list_count}, {"index", list_index}};
constexpr Builtin kFloatMethods[] = {{"is_integer", float_is_integer}};

// Attributes that Python has and templates cannot use. The sandbox hides those that change their object; the
// missing ones are refused.
constexpr std::string_view kHiddenDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kHiddenList[] = {"append", "clear",  "extend",  "insert",
                                            "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kMissingString[] = {"encode", "format_map", "maketrans", "translate"};
constexpr std::string_view kMissingDict[] = {"fromkeys"};
constexpr std::string_view kMissingNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
    "fromhex",          "hex",       "imag",       "numerator", "real",        "to_bytes"};

template <size_t N>
bool is_among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& each) { return each.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

bool is_hidden(const Value& value, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) return true;
  if (value.is_dict()) return is_among(kHiddenDict, name);
  return value.kind() == Kind::List && is_among(kHiddenList, name);
}

const Builtin* find_method(const Value& value, std::string_view name) {
  const auto refuse_if = [&](bool missing) {
    if (missing) fault("the attribute '{}' of {} is not supported in chat templates", name, type_name(value));
  };
  switch (value.kind()) {
    case Kind::Str:
      refuse_if(is_among(kMissingString, name));
      return find_in(string_methods(), name);
    case Kind::Dict:
      refuse_if(is_among(kMissingDict, name));
      return find_in(kDictMethods, name);
    case Kind::List:
      return find_in(kListMethods, name);
    case Kind::Tuple:
      return find_in(kTupleMethods, name);
    case Kind::Bool:
    case Kind::Int:
      refuse_if(is_among(kMissingNumber, name));
      return nullptr;
    case Kind::Float:
      refuse_if(is_among(kMissingNumber, name));
      return find_in(kFloatMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace quintet::chat::jinja
