// Python's `format % values` and str.format.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

// How one value is printed. Both ways of formatting are reduced to it.
struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: of the type
  char sign = '-';
  bool alternate = false;  // '#'
  char group = 0;          // ',' or '_'
  int64_t width = 0, precision = -1;
  char type = 0;
};

std::string padded(Runtime& runtime, const Spec& spec, std::string_view sign, const std::string& body,
                   char align) {
  const int64_t missing = spec.width - count_code_points(sign) - count_code_points(body);
  if (missing <= 0) return std::string(sign) + body;
  runtime.require_text(std::min(missing, kMaxText + 1) * static_cast<int64_t>(spec.fill.size()));
  const auto fill = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += spec.fill;
    return text;
  };
  const char where = spec.align != 0 ? spec.align : align;
  if (where == '<') return std::string(sign) + body + fill(missing);
  if (where == '^') return fill(missing / 2) + std::string(sign) + body + fill(missing - missing / 2);
  if (where == '=') return std::string(sign) + fill(missing) + body;
  return fill(missing) + std::string(sign) + body;
}

std::string_view sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string grouped(std::string digits, char separator, int size) {
  if (separator == 0) return digits;
  for (auto at = static_cast<int64_t>(digits.size()) - size; at > 0; at -= size)
    digits.insert(static_cast<size_t>(at), 1, separator);
  return digits;
}

std::string format_integer(Runtime& runtime, const Spec& spec, int64_t value) {
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      prefix = "0b";
      break;
    default:
      digits = fmt::format("{}", magnitude);
  }
  const bool decimal = prefix.empty();
  if (!decimal && spec.group == ',') fault("',' cannot be combined with the format '{}'", spec.type);
  digits = grouped(digits, spec.group, decimal ? 3 : 4);
  if (spec.group != 0 && spec.align == '=' && spec.fill == "0")
    fault("zero padding together with '{}' is not supported", spec.group);
  const std::string sign = std::string(sign_of(spec, negative)) + (spec.alternate ? prefix : "");
  return padded(runtime, spec, sign, digits, '>');
}

// Digits of %g: `precision` significant ones, without zeros at the end unless `keep`.
std::string general(double value, int64_t precision, bool keep) {
  if (precision == 0) precision = 1;
  std::string scientific = fmt::format("{:.{}e}", value, precision - 1);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  const bool plain = exponent >= -4 && exponent < precision;
  std::string text = plain ? fmt::format("{:.{}f}", value, precision - 1 - exponent)
                           : scientific.substr(0, scientific.find('e'));
  if (!keep && text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  if (!plain) text += scientific.substr(scientific.find('e'));
  return text;
}

std::string format_float(Runtime& runtime, const Spec& spec, double value, bool printf_style) {
  if (spec.precision > 400) fault("a precision of {}; at most 400 is supported", spec.precision);
  const bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::fabs(value);
  const char type = static_cast<char>(spec.type | 0x20);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
  } else if (spec.type == '%') {
    digits = fmt::format("{:.{}f}%", magnitude * 100, spec.precision < 0 ? 6 : spec.precision);
  } else if (type == 'f') {
    digits = fmt::format("{:.{}f}", magnitude, spec.precision < 0 ? 6 : spec.precision);
  } else if (type == 'e') {
    digits = fmt::format("{:.{}e}", magnitude, spec.precision < 0 ? 6 : spec.precision);
  } else if (type == 'g' || type == 'n') {
    digits = general(magnitude, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  } else if (spec.precision < 0) {
    digits = float_text(magnitude);
  } else {
    // No type but a precision: like g, but with at least one digit after the point.
    digits = general(magnitude, spec.precision, false);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  if (spec.alternate && !printf_style) fault("'#' for floats is not supported");
  if (spec.type >= 'A' && spec.type <= 'Z')
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  if (spec.group != 0) {
    const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, end), spec.group, 3) + digits.substr(end);
  }
  return padded(runtime, spec, sign_of(spec, negative), digits, '>');
}

std::string format_text(Runtime& runtime, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, byte_of_code_point(text, spec.precision));
  return padded(runtime, spec, "", std::string(text), '<');
}

int64_t read_number(std::string_view& left) {
  int64_t value = 0;
  while (!left.empty() && left[0] >= '0' && left[0] <= '9') {
    value = std::min<int64_t>(value * 10 + (left[0] - '0'), kMaxText + 1);
    left.remove_prefix(1);
  }
  return value;
}

// ---- str.format

Spec read_spec(std::string_view text) {
  Spec spec;
  std::string_view left = text;
  const auto is_align = [](std::string_view at) {
    return !at.empty() && std::string_view("<>^=").find(at[0]) != std::string_view::npos;
  };
  const auto take = [&](char c) {
    if (left.empty() || left[0] != c) return false;
    left.remove_prefix(1);
    return true;
  };
  if (!left.empty()) {
    const auto first = static_cast<size_t>(tokenizer::utf8_length(left[0]));
    if (left.size() > first && is_align(left.substr(first))) {
      spec.fill = std::string(left.substr(0, first));
      spec.align = left[first];
      left.remove_prefix(first + 1);
    } else if (is_align(left)) {
      spec.align = left[0];
      left.remove_prefix(1);
    }
  }
  for (const char sign : {'+', '-', ' '})
    if (take(sign)) {
      spec.sign = sign;
      break;
    }
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(left);
  for (const char group : {',', '_'})
    if (take(group)) {
      spec.group = group;
      break;
    }
  if (take('.')) {
    if (left.empty() || left[0] < '0' || left[0] > '9')
      fault("the format '{}' has no precision after '.'", text);
    spec.precision = read_number(left);
  }
  if (left.size() == 1) {
    spec.type = left[0];
    left = {};
  }
  if (!left.empty()) fault("invalid format specifier '{}'", text);
  return spec;
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
  if (text.empty()) return str_of(value);
  Spec spec = read_spec(text);
  if (value.is_undefined()) fault("a format specifier for an undefined value: {}", value.why_undefined());
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') fault("unknown format '{}' for a string", spec.type);
    if (spec.align == '=') {
      if (spec.fill != "0" || text.find('=') != std::string_view::npos) fault("'=' alignment of a string");
      spec.align = '<';
    }
    return format_text(runtime, spec, value.text());
  }
  const bool float_type =
      std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos && spec.type != 0;
  if (value.kind() == Kind::Bool && spec.type == 0)
    fault("a format specifier for a bool needs a type, such as 'd'");
  if (value.is_integer() && !float_type) {
    if (spec.precision >= 0) fault("a precision is not allowed for integers");
    if (spec.type == 'c') {
      std::string character;
      if (value.as_int() < 0 || value.as_int() > 0x10FFFF) fault("'c' needs a code point");
      tokenizer::append_utf8(static_cast<char32_t>(value.as_int()), character);
      return format_text(runtime, spec, character);
    }
    if (std::string_view("dxXob").find(spec.type) == std::string_view::npos && spec.type != 0)
      fault("unknown format '{}' for an int", spec.type);
    return format_integer(runtime, spec, value.as_int());
  }
  if (value.is_number()) {
    if (!float_type && spec.type != 0) fault("unknown format '{}' for a float", spec.type);
    return format_float(runtime, spec, value.as_float(), false);
  }
  fault("an object of type {} takes no format specifier", type_name(value));
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Call& call) : runtime_(runtime), call_(call) {}

  std::string run(std::string_view format, int depth = 0) {
    if (depth > 2) fault("str.format: fields are nested too deep");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
        continue;
      }
      if (at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') fault("str.format: a single '}}' in '{}'", format);
      const size_t end = field_end(format, at);
      out += field(format.substr(at + 1, end - at - 1), depth);
      runtime_.require_text(static_cast<int64_t>(out.size()));
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view format, size_t begin) {
    int open = 0;
    for (size_t at = begin; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    fault("str.format: '{{' without its end in '{}'", format);
  }

  std::string field(std::string_view text, int depth) {
    const size_t colon = text.find(':');
    std::string_view name = text.substr(0, colon);
    char conversion = 0;
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) fault("str.format: '!' needs one of r and s after it");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    const Value value = lookup(name);  // before those of the specifier, which count on
    const std::string spec = colon == std::string_view::npos ? "" : run(text.substr(colon + 1), depth + 1);
    if (conversion == 0) return format_value(runtime_, value, spec);
    if (conversion != 'r' && conversion != 's')
      fault("str.format: the conversion '!{}' is not supported", conversion);
    return format_value(runtime_, Value::string(conversion == 'r' ? repr_of(value) : str_of(value)), spec);
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      const bool item = rest[0] == '[';
      const size_t stop = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == std::string_view::npos || (!item && rest[0] != '.'))
        fault("str.format: invalid field '{}'", name);
      const std::string part(rest.substr(1, stop - 1));
      int64_t index = 0;
      const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool number =
          parsed.ec == std::errc() && parsed.ptr == part.data() + part.size() && part[0] != '-';
      if (item)
        value = get_item(runtime_, value, number ? Value::integer(index) : Value::string(part));
      else
        value = get_attribute(runtime_, value, part);
      rest.remove_prefix(item ? stop + 1 : stop);
    }
    return value;
  }

  Value first(std::string_view name) {
    size_t index = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    if (name.empty()) {
      if (manual_) fault("str.format: '{{}}' and '{{0}}' cannot be mixed");
      automatic_ = true;
      index = next_++;
    } else if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) {
      if (automatic_) fault("str.format: '{{}}' and '{{0}}' cannot be mixed");
      manual_ = true;
    } else {
      for (const auto& [key, value] : call_.kwargs)
        if (key == name) return value;
      fault("str.format: no argument named '{}'", name);
    }
    if (index >= call_.args.size())
      fault("str.format: no argument {}; {} are given", index, call_.args.size());
    return call_.args[index];
  }

  Runtime& runtime_;
  const Call& call_;
  size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

// ---- %

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), tuple_(values.kind() == Kind::Tuple) {}

  std::string run() {
    std::string out;
    std::string_view left = format_;
    while (!left.empty()) {
      const size_t at = std::min(left.find('%'), left.size());
      out += left.substr(0, at);
      left.remove_prefix(at);
      if (left.empty()) break;
      left.remove_prefix(1);
      out += directive(left);
      runtime_.require_text(static_cast<int64_t>(out.size()));
    }
    const bool all_used = tuple_ ? next_ == values_.items().size()
                                 : next_ > 0 || values_.is_dict() || values_.kind() == Kind::List;
    if (!all_used) fault("not all arguments of '%' were used by '{}'", format_);
    return out;
  }

 private:
  Value next_value() {
    if (tuple_ ? next_ >= values_.items().size() : next_ > 0)
      fault("'%' has fewer arguments than '{}' needs", format_);
    ++next_;
    return tuple_ ? values_.items()[next_ - 1] : values_;
  }

  std::string directive(std::string_view& left) {
    Spec spec;
    std::optional<Value> value;
    if (!left.empty() && left[0] == '(') {
      const size_t end = left.find(')');
      if (end == std::string_view::npos || !values_.is_dict())
        fault("'%(' needs a name, and a dict on the right side of '%'");
      const Value* found = find_key(values_, left.substr(1, end - 1));
      if (found == nullptr) fault("'%': no value named '{}'", left.substr(1, end - 1));
      value = *found;
      left.remove_prefix(end + 1);
    }
    bool zero = false, minus = false;
    for (; !left.empty(); left.remove_prefix(1)) {
      const char c = left[0];
      if (c == '-')
        minus = true;
      else if (c == '0')
        zero = true;
      else if (c == '+' || (c == ' ' && spec.sign != '+'))
        spec.sign = c;
      else if (c == '#')
        spec.alternate = true;
      else if (c != ' ')
        break;
    }
    const auto size = [&]() -> int64_t {
      if (left.empty() || left[0] != '*') return read_number(left);
      left.remove_prefix(1);
      return int_argument(next_value(), "'*' of '%'");
    };
    spec.width = size();
    if (spec.width < 0) {
      minus = true;
      spec.width = -spec.width;
    }
    if (!left.empty() && left[0] == '.') {
      left.remove_prefix(1);
      spec.precision = std::max<int64_t>(size(), 0);
    }
    while (!left.empty() && (left[0] == 'l' || left[0] == 'h' || left[0] == 'L')) left.remove_prefix(1);
    if (left.empty()) fault("'%': the format '{}' ends within a directive", format_);
    spec.type = left[0];
    left.remove_prefix(1);
    if (spec.type == '%') return "%";
    spec.align = minus ? '<' : '>';
    if (!value) value = next_value();
    if (zero && !minus && spec.type != 's' && spec.type != 'r' && spec.type != 'c') {
      spec.fill = "0";
      spec.align = '=';
    }
    return print(spec, *value);
  }

  std::string print(Spec spec, const Value& value) {
    switch (spec.type) {
      case 's':
        return format_text(runtime_, spec, str_of(value));
      case 'r':
        return format_text(runtime_, spec, repr_of(value));
      case 'c':
        if (value.is_string() && value.code_points() == 1) return format_text(runtime_, spec, value.text());
        fault("'%c' needs a string of one character");
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (value.is_undefined()) fail_undefined(value);
        if (!value.is_number()) fault("'%{}' needs a number, not a {}", spec.type, type_name(value));
        if (!value.is_integer() && spec.type != 'd' && spec.type != 'i' && spec.type != 'u')
          fault("'%{}' needs an integer, not a float", spec.type);
        if (spec.precision >= 0) fault("a precision of integers is not supported in '%'");
        if (!value.is_integer() && !(std::fabs(value.as_float()) < 9e18))
          fault("'%d' of a number beyond 64 bits");
        return format_integer(runtime_, spec,
                              value.is_integer() ? value.as_int() : static_cast<int64_t>(value.as_float()));
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) fail_undefined(value);
        if (!value.is_number()) fault("'%{}' needs a number, not a {}", spec.type, type_name(value));
        return format_float(runtime_, spec, value.as_float(), true);
      default:
        fault("'%{}' is not supported", spec.type);
    }
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  bool tuple_;
  size_t next_ = 0;
};

}  // namespace

std::string brace_format(Runtime& runtime, std::string_view format, const Call& call) {
  return BraceFormatter(runtime, call).run(format);
}

std::string percent_format(Runtime& runtime, std::string_view format, const Value& values) {
  return PercentFormatter(runtime, format, values).run();
}

}  // namespace quintet::chat::jinja
