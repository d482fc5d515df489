// Jinja's tests: what follows `is`.
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

const Value& only(const Call& call) {
  call.bind({"value"}, 1);
  return call.args[0];
}

Value is_defined(Runtime&, Call& call) { return Value::boolean(!only(call).is_undefined()); }
Value is_undefined(Runtime&, Call& call) { return Value::boolean(only(call).is_undefined()); }
Value is_none(Runtime&, Call& call) { return Value::boolean(only(call).is_none()); }
Value is_boolean(Runtime&, Call& call) { return Value::boolean(only(call).kind() == Kind::Bool); }
template <bool Which>
Value is_bool(Runtime&, Call& call) {
  const Value& value = only(call);
  return Value::boolean(value.kind() == Kind::Bool && value.as_bool() == Which);
}
Value is_integer(Runtime&, Call& call) { return Value::boolean(only(call).kind() == Kind::Int); }
Value is_float(Runtime&, Call& call) { return Value::boolean(only(call).kind() == Kind::Float); }
Value is_number(Runtime&, Call& call) { return Value::boolean(only(call).is_number()); }
Value is_string(Runtime&, Call& call) { return Value::boolean(only(call).is_string()); }
Value is_mapping(Runtime&, Call& call) { return Value::boolean(only(call).is_dict()); }
Value is_iterable(Runtime&, Call& call) { return Value::boolean(try_iterate(only(call)) != nullptr); }
Value is_sequence(Runtime&, Call& call) {
  const Value& value = only(call);
  return Value::boolean(value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
                        value.as<Range>());
}
Value is_callable(Runtime&, Call& call) {
  const Value& value = only(call);
  // Undefined values can be called: that fails when they are.
  return Value::boolean(value.is_undefined() || value.as<Function>() || value.as<Callable>());
}
Value is_escaped(Runtime&, Call& call) { return Value::boolean(only(call).is_markup()); }
Value is_lower(Runtime&, Call& call) {
  return Value::boolean(all_characters(str_of(only(call)), CharTest::Lower));
}
Value is_upper(Runtime&, Call& call) {
  return Value::boolean(all_characters(str_of(only(call)), CharTest::Upper));
}
template <int64_t Rest>
Value is_rest(Runtime& runtime, Call& call) {
  return Value::boolean(equal(binary(runtime, "%", only(call), Value::integer(2)), Value::integer(Rest)));
}
Value is_divisibleby(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "num"}, 2);
  return Value::boolean(equal(binary(runtime, "%", *bound[0], *bound[1]), Value::integer(0)));
}
Value is_sameas(Runtime&, Call& call) {
  const auto bound = call.bind({"value", "other"}, 2);
  return Value::boolean(is_same(*bound[0], *bound[1]));
}
Value is_filter(Runtime&, Call& call) {
  const Value& name = only(call);
  return Value::boolean(name.is_string() && find_filter(name.text()) != nullptr);
}
Value is_test(Runtime&, Call& call) {
  const Value& name = only(call);
  return Value::boolean(name.is_string() && find_test(name.text()) != nullptr);
}
template <CompareOp Op>
Value is_compared(Runtime&, Call& call) {
  const auto bound = call.bind({"a", "b"}, 2);
  return Value::boolean(compare(Op, *bound[0], *bound[1]));
}

constexpr Builtin kTests[] = {
    {"!=", is_compared<CompareOp::NotEqual>},
    {"<", is_compared<CompareOp::Less>},
    {"<=", is_compared<CompareOp::LessEqual>},
    {"==", is_compared<CompareOp::Equal>},
    {">", is_compared<CompareOp::Greater>},
    {">=", is_compared<CompareOp::GreaterEqual>},
    {"boolean", is_boolean},
    {"callable", is_callable},
    {"defined", is_defined},
    {"divisibleby", is_divisibleby},
    {"eq", is_compared<CompareOp::Equal>},
    {"equalto", is_compared<CompareOp::Equal>},
    {"escaped", is_escaped},
    {"even", is_rest<0>},
    {"false", is_bool<false>},
    {"filter", is_filter},
    {"float", is_float},
    {"ge", is_compared<CompareOp::GreaterEqual>},
    {"greaterthan", is_compared<CompareOp::Greater>},
    {"gt", is_compared<CompareOp::Greater>},
    {"in", is_compared<CompareOp::In>},
    {"integer", is_integer},
    {"iterable", is_iterable},
    {"le", is_compared<CompareOp::LessEqual>},
    {"lessthan", is_compared<CompareOp::Less>},
    {"lower", is_lower},
    {"lt", is_compared<CompareOp::Less>},
    {"mapping", is_mapping},
    {"ne", is_compared<CompareOp::NotEqual>},
    {"none", is_none},
    {"number", is_number},
    {"odd", is_rest<1>},
    {"sameas", is_sameas},
    {"sequence", is_sequence},
    {"string", is_string},
    {"test", is_test},
    {"true", is_bool<true>},
    {"undefined", is_undefined},
    {"upper", is_upper},
};

}  // namespace

std::span<const Builtin> all_tests() { return kTests; }

}  // namespace quintet::chat::jinja
