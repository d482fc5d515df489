#include "chat/jinja/operators.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fault("'{}' does not work between a {} and a {}", op, type_name(a), type_name(b));
}
[[noreturn]] void fail_overflow(std::string_view op) { fault("the result of '{}' does not fit 64 bits", op); }

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    std::string text = b.is_markup() && !a.is_markup() ? escape_html(a.text()) : a.text();
    text += a.is_markup() && !b.is_markup() ? escape_html(b.text()) : b.text();
    return runtime.make_string(std::move(text), markup);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    Values items = a.items();
    runtime.require_items(static_cast<int64_t>(items.size() + b.items().size()));
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.kind() == Kind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  fail_operands("+", a, b);
}

Value repeat(Runtime& runtime, const Value& what, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (what.is_string()) {
    const auto size = static_cast<int64_t>(what.text().size());
    if (size > 0 && count > kMaxText) count = kMaxText + 1;
    runtime.require_text(size * count);
    std::string text;
    text.reserve(static_cast<size_t>(size * count));
    for (int64_t i = 0; size > 0 && i < count; ++i) text += what.text();
    return Value::string(std::move(text), what.is_markup());
  }
  const auto size = static_cast<int64_t>(what.items().size());
  if (size > 0 && count > kMaxItems) count = kMaxItems + 1;
  runtime.require_items(size * count);
  Values items;
  for (int64_t i = 0; size > 0 && i < count; ++i)
    items.insert(items.end(), what.items().begin(), what.items().end());
  return what.kind() == Kind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fault("division by zero");
  if (b == -1) {
    if (a == INT64_MIN) fail_overflow("//");
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) fault("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double float_modulo(double a, double b) {
  if (b == 0) fault("division by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (rest == 0) rest = std::copysign(0.0, b);
  return rest;
}
double float_floor_divide(double a, double b) {
  const double rest = float_modulo(a, b);
  double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value power(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer() && b.as_int() >= 0) {
    int64_t result = 1, base = a.as_int();
    for (int64_t left = b.as_int(); left > 0; left >>= 1) {
      if ((left & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow("**");
      if (left > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow("**");
    }
    return Value::integer(result);
  }
  if (a.as_float() == 0 && b.as_float() < 0) fault("zero cannot be raised to a negative power");
  const double result = std::pow(a.as_float(), b.as_float());
  if (std::isnan(result) && !std::isnan(a.as_float()) && !std::isnan(b.as_float()))
    fault("a negative number raised to a fraction is complex");
  return Value::number(result);
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  const bool whole = a.is_integer() && b.is_integer();
  int64_t result = 0;
  if (op == "/") {
    if (b.as_float() == 0) fault("division by zero");
    return Value::number(a.as_float() / b.as_float());
  }
  if (op == "**") return power(a, b);
  if (!whole) {
    const double x = a.as_float(), y = b.as_float();
    if (op == "+") return Value::number(x + y);
    if (op == "-") return Value::number(x - y);
    if (op == "*") return Value::number(x * y);
    return Value::number(op == "//" ? float_floor_divide(x, y) : float_modulo(x, y));
  }
  const int64_t x = a.as_int(), y = b.as_int();
  if (op == "//") return Value::integer(floor_divide(x, y));
  if (op == "%") return Value::integer(floor_modulo(x, y));
  const bool overflow = op == "+"   ? __builtin_add_overflow(x, y, &result)
                        : op == "-" ? __builtin_sub_overflow(x, y, &result)
                                    : __builtin_mul_overflow(x, y, &result);
  if (overflow) fail_overflow(op);
  return Value::integer(result);
}

Value undefined_attribute(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(value), name));
}

// An attribute of Python's types, of objects and namespaces; empty if there is none.
std::optional<Value> find_attribute(Runtime& runtime, const Value& value, const std::string& name) {
  if (value.kind() == Kind::Object) {
    if (const auto space = value.as<Namespace>()) {
      const Value* found = space->find(name);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    if (auto* attributes = dynamic_cast<Attributes*>(value.as<ObjectHeap>().get()))
      return attributes->attribute(runtime, name);
    return std::nullopt;
  }
  if (value.is_group() && (name == "grouper" || name == "list")) return value.items()[name == "list" ? 1 : 0];
  if (is_hidden(value, name))
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  if (const Builtin* method = find_method(value, name)) {
    auto bound = std::make_shared<Function>();
    bound->builtin = method;
    bound->self = value;
    bound->depth = depth_above(value);
    return Value::object(std::move(bound));
  }
  return std::nullopt;
}

std::optional<Value> find_item(const Value& value, const Value& key) {
  if (value.is_dict()) {
    if (key.kind() == Kind::List || key.is_dict()) return std::nullopt;
    const Value* found = find_key(value, key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_integer()) return std::nullopt;
  int64_t index = key.as_int();
  const auto range = value.as<Range>();
  if (!value.is_sequence() && !value.is_string() && !range) return std::nullopt;
  const int64_t length = length_of(value);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  if (range) return Value::integer(range->begin + range->step * index);
  if (value.is_sequence()) return value.items()[static_cast<size_t>(index)];
  const size_t at = byte_of_code_point(value.text(), index);
  return Value::string(value.text().substr(at, byte_of_code_point(value.text().substr(at, 4), 1)),
                       value.is_markup());
}

}  // namespace

int64_t int_argument(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integer()) fault("{} must be an integer, not a {}", what, type_name(value));
  return value.as_int();
}

const std::string& text_argument(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) fault("{} must be a string, not a {}", what, type_name(value));
  return value.text();
}

Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == "+") return add(runtime, a, b);
  if (op == "*") {
    if ((a.is_string() || a.is_sequence()) && b.is_integer()) return repeat(runtime, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integer()) return repeat(runtime, b, a.as_int());
  }
  if (op == "%" && a.is_string() && !b.is_undefined()) {
    if (a.is_markup()) fault("'%' on a string marked as safe is not supported");
    return runtime.make_string(percent_format(runtime, a.text(), b));
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.kind() == Kind::Float) return Value::number(-value.as_float());
  if (!value.is_integer()) fault("a {} cannot be negated", type_name(value));
  if (value.as_int() == INT64_MIN) fail_overflow("-");
  return Value::integer(-value.as_int());
}

Value plus(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fault("a {} cannot have the sign '+'", type_name(value));
  return value.kind() == Kind::Bool ? Value::integer(value.as_int()) : value;
}

bool compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::Equal:
      return equal(a, b);
    case CompareOp::NotEqual:
      return !equal(a, b);
    case CompareOp::Less:
      return order(a, b) == -1;
    case CompareOp::LessEqual:
      return order(a, b) <= 0;
    case CompareOp::Greater:
      return order(a, b) == 1;
    case CompareOp::GreaterEqual: {
      const int sign = order(a, b);
      return sign == 0 || sign == 1;
    }
    case CompareOp::In:
      return contains(b, a);
    case CompareOp::NotIn:
      return !contains(b, a);
  }
  return false;
}

Value get_attribute(Runtime& runtime, const Value& value, const std::string& name) {
  if (value.is_undefined()) fail_undefined(value);
  if (auto found = find_attribute(runtime, value, name)) return *std::move(found);
  if (value.is_dict())
    if (const Value* found = find_key(value, std::string_view(name))) return *found;
  return undefined_attribute(value, name);
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value);
  if (auto found = find_item(value, key)) return *std::move(found);
  if (key.is_string()) {
    if (auto found = find_attribute(runtime, value, key.text())) return *std::move(found);
    return undefined_attribute(value, key.text());
  }
  return Value::undefined(fmt::format("{} object has no element {}", type_name(value), repr_of(key)));
}

Value get_slice(Runtime& runtime, const Value& value, const Value* begin, const Value* end,
                const Value* step) {
  if (value.is_undefined()) fail_undefined(value);
  const auto range = value.as<Range>();
  if (!value.is_sequence() && !value.is_string() && !range)
    fault("an object of type '{}' cannot be sliced", type_name(value));
  const int64_t length = length_of(value);
  const auto number = [](const Value* part, std::string_view what) -> std::optional<int64_t> {
    if (part == nullptr || part->is_none()) return std::nullopt;
    return int_argument(*part, what);
  };
  const int64_t stride = number(step, "the step of a slice").value_or(1);
  if (stride == 0) fault("the step of a slice cannot be 0");
  const int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? length - 1 : length;
  const auto place = [&](std::optional<int64_t> part, int64_t fallback) {
    if (!part) return fallback;
    int64_t index = *part;
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, std::max(low, high));
  };
  const int64_t from = place(number(begin, "the start of a slice"), stride < 0 ? high : low);
  const int64_t to = place(number(end, "the end of a slice"), stride < 0 ? low : high);
  int64_t count = 0;
  if (stride > 0 && from < to) count = (to - from - 1) / stride + 1;
  if (stride < 0 && to < from) count = (from - to - 1) / -std::max(stride, -INT64_MAX) + 1;
  if (range) {
    auto part = std::make_shared<Range>();
    part->begin = range->begin + range->step * from;
    part->step = range->step * stride;
    part->end = range->begin + range->step * to;
    part->count = count;
    return Value::object(std::move(part));
  }
  if (value.is_sequence()) {
    runtime.step(count);
    Values items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      items.push_back(value.items()[static_cast<size_t>(from + i * stride)]);
    return value.kind() == Kind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  const std::string& text = value.text();
  runtime.step(static_cast<int64_t>(text.size()) / 16);
  if (stride == 1) {
    const size_t first = byte_of_code_point(text, from);
    const size_t last = first + byte_of_code_point(std::string_view(text).substr(first), count);
    return Value::string(text.substr(first, last - first), value.is_markup());
  }
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t size = byte_of_code_point(std::string_view(text).substr(at, 4), 1);
    characters.push_back(std::string_view(text).substr(at, size));
    at += size;
  }
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += characters[static_cast<size_t>(from + i * stride)];
  return Value::string(std::move(out), value.is_markup());
}

Value get_path(Runtime& runtime, Value value, const Value& path, const Value* fallback) {
  const auto next = [&](const Value& key) {
    value = get_item(runtime, value, key);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  };
  if (path.is_none()) return value;
  if (!path.is_string()) {
    next(path);
    return value;
  }
  std::string_view left = path.text();
  for (;;) {
    const size_t dot = left.find('.');
    const std::string part(left.substr(0, dot));
    int64_t index = 0;
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc())
      next(Value::integer(index));
    else
      next(Value::string(part));
    if (dot == std::string_view::npos) return value;
    left.remove_prefix(dot + 1);
  }
}

}  // namespace quintet::chat::jinja
