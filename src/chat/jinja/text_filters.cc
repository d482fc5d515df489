// Filters of single values: text, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

// str() of a value, which stays escaped text if it is.
Value soft(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : runtime.make_string(str_of(value));
}

template <std::string (*Change)(std::string_view)>
Value change_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s"}, 1);
  const Value text = soft(runtime, *bound[0]);
  runtime.step(static_cast<int64_t>(text.text().size()));
  return runtime.make_string(Change(text.text()), text.is_markup());
}

// Words begin after white space, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  const auto divides = [](std::string_view at) {
    const char* here = at.data();
    const char32_t code = tokenizer::next_code(here);
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  const auto length = [](char lead) { return static_cast<size_t>(tokenizer::utf8_length(lead)); };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (divides(text.substr(at))) {
      out += text.substr(at, length(text[at]));
      at += length(text[at]);
      continue;
    }
    size_t end = at;
    while (end < text.size() && !divides(text.substr(end))) end += length(text[end]);
    const size_t first = length(text[at]);
    out += to_upper(text.substr(at, first)) + to_lower(text.substr(at + first, end - at - first));
    at = end;
  }
  return out;
}

Value abs_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"x"}, 1);
  if (bound[0]->is_undefined()) fail_undefined(*bound[0]);
  if (!bound[0]->is_number()) fault("abs needs a number, not a {}", type_name(*bound[0]));
  if (bound[0]->kind() == Kind::Float) return Value::number(std::fabs(bound[0]->as_float()));
  return bound[0]->as_int() < 0 ? negate(*bound[0]) : Value::integer(bound[0]->as_int());
}

Value call_method(Runtime& runtime, const Value& text, std::string_view name, Values arguments) {
  const Builtin* method = find_method(text, name);
  Call call{method->name, std::move(arguments), {}};
  call.args.insert(call.args.begin(), text);
  return method->apply(runtime, call);
}

Value center_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "width"}, 1);
  return call_method(runtime, soft(runtime, *bound[0]), "center", {bound[1].value_or(Value::integer(80))});
}

Value default_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"value", "default_value", "boolean"}, 1);
  const bool empty = bound[2] && truth(*bound[2]) && !truth(*bound[0]);
  if (!bound[0]->is_undefined() && !empty) return *bound[0];
  return bound[1].value_or(Value::string(""));
}

Value escape_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s"}, 1);
  return runtime.make_string(escaped(*bound[0]), true);
}

Value forceescape_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  return runtime.make_string(escape_html(str_of(*bound[0])), true);
}

Value safe_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  return runtime.make_string(str_of(*bound[0]), true);
}

Value string_filter(Runtime& runtime, Call& call) { return soft(runtime, *call.bind({"object"}, 1)[0]); }

// float() of Python; empty if it raises ValueError or TypeError.
std::optional<double> to_float(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_number()) return value.as_float();
  if (!value.is_string()) return std::nullopt;
  std::string text;
  const std::string_view stripped = strip(value.text());
  for (size_t i = 0; i < stripped.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < stripped.size() && stripped[at] >= '0' && stripped[at] <= '9';
    };
    if (stripped[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    text += static_cast<char>(stripped[i] >= 'A' && stripped[i] <= 'Z' ? stripped[i] + 32 : stripped[i]);
  }
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  double number = 0;
  if (text == "inf" || text == "infinity")
    number = INFINITY;
  else if (text == "nan")
    number = NAN;
  else {
    if (text.empty() || !(text[0] == '.' || (text[0] >= '0' && text[0] <= '9'))) return std::nullopt;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    if (result.ptr != text.data() + text.size()) return std::nullopt;
    if (result.ec == std::errc::result_out_of_range)
      number = text.find("e-") == std::string::npos ? INFINITY : 0;
  }
  return negative ? -number : number;
}

Value float_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"value", "default"}, 1);
  if (const auto number = to_float(*bound[0])) return Value::number(*number);
  return bound[1].value_or(Value::number(0));
}

std::optional<int64_t> whole_of(double number) {
  if (std::isnan(number)) return std::nullopt;
  if (std::isinf(number)) fault("an infinite number has no integer");
  if (!(std::fabs(number) < 9.2e18)) fault("the integer of {} does not fit 64 bits", number);
  return static_cast<int64_t>(number);
}

// int(text, base) of Python; empty if it raises ValueError.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  std::string_view left = strip(text);
  const bool negative = left.starts_with('-');
  if (negative || left.starts_with('+')) left.remove_prefix(1);
  if (left.size() > 2 && left[0] == '0') {
    const char letter = static_cast<char>(left[1] | 0x20);
    const int64_t its = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (its != 0 && (base == its || base == 0)) {
      left.remove_prefix(2);
      base = its;
    }
  }
  if (base == 0) base = 10;
  std::string digits;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] == '_' && i > 0 && i + 1 < left.size() && left[i - 1] != '_') continue;
    digits += left[i];
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t value = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) fault("the integer {} does not fit 64 bits", digits);
  if (result.ec != std::errc()) return std::nullopt;
  return negative ? -value : value;
}

Value int_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"value", "default", "base"}, 1);
  const Value& value = *bound[0];
  const int64_t base = bound[2] ? int_argument(*bound[2], "base") : 10;
  if (base != 0 && (base < 2 || base > 36)) fault("int: the base must be 0 or from 2 to 36, not {}", base);
  if (value.is_integer()) return Value::integer(value.as_int());
  if (value.is_string())
    if (const auto number = parse_integer(value.text(), base)) return Value::integer(*number);
  if (const auto number = to_float(value)) {
    if (!(value.is_string() && std::isinf(*number)))
      if (const auto whole = whole_of(*number)) return Value::integer(*whole);
  }
  return bound[1].value_or(Value::integer(0));
}

Value format_filter(Runtime& runtime, Call& call) {
  if (call.args.empty()) fault("'format' needs a value");
  if (call.args.size() > 1 && !call.kwargs.empty())
    fault("'format' takes values by position or by name, not both");
  const std::string format = str_of(call.args[0]);
  if (call.args[0].is_markup()) fault("'format' of a string marked as safe is not supported");
  if (call.kwargs.empty())
    return runtime.make_string(
        percent_format(runtime, format, Value::tuple(Values(call.args.begin() + 1, call.args.end()))));
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : call.kwargs) named.emplace_back(Value::string(name), value);
  return runtime.make_string(percent_format(runtime, format, Value::dict(std::move(named))));
}

Value indent_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s", "width", "first", "blank"}, 1);
  const std::string& text = text_argument(*bound[0], "the text of 'indent'");
  const Value width = bound[1].value_or(Value::integer(4));
  std::string indent;
  if (width.is_string()) {
    indent = width.text();
  } else {
    const int64_t count = std::max<int64_t>(int_argument(width, "the width of 'indent'"), 0);
    runtime.require_text(count);
    indent.assign(static_cast<size_t>(count), ' ');
  }
  const bool first = bound[2] && truth(*bound[2]), blank = bound[3] && truth(*bound[3]);
  const Value lines = call_method(runtime, Value::string(text + "\n"), "splitlines", {});
  runtime.require_text(static_cast<int64_t>(text.size()) +
                       std::min<int64_t>(length_of(lines), kMaxText) * static_cast<int64_t>(indent.size()));
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.items().size(); ++i) {
    const std::string& line = lines.items()[i].text();
    if (i > 0) out += "\n";
    if (i > 0 && (blank || !line.empty())) out += indent;
    out += line;
  }
  return runtime.make_string(std::move(out), bound[0]->is_markup());
}

Value replace_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s", "old", "new", "count"}, 3);
  Values arguments = {Value::string(str_of(*bound[1])), Value::string(str_of(*bound[2]))};
  if (bound[3] && !bound[3]->is_none()) arguments.push_back(*bound[3]);
  return call_method(runtime, Value::string(str_of(*bound[0])), "replace", std::move(arguments));
}

Value round_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"value", "precision", "method"}, 1);
  const Value& value = *bound[0];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fault("round needs a number, not a {}", type_name(value));
  const int64_t precision = bound[1] ? int_argument(*bound[1], "precision") : 0;
  const std::string method = bound[2] ? text_argument(*bound[2], "method") : "common";
  if (precision < 0 || precision > 300) fault("round: a precision of {} is not supported", precision);
  if (method == "common") {
    if (value.is_integer()) return Value::integer(value.as_int());
    if (!std::isfinite(value.as_float())) return value;
    const std::string text = fmt::format("{:.{}f}", value.as_float(), precision);
    double rounded = 0;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return Value::number(rounded);
  }
  if (method != "ceil" && method != "floor") fault("round: the method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_float() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value trim_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "chars"}, 1);
  return call_method(runtime, soft(runtime, *bound[0]), "strip", {bound[1].value_or(Value::none())});
}

Value truncate_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s", "length", "killwords", "end", "leeway"}, 1);
  const std::string& text = text_argument(*bound[0], "the text of 'truncate'");
  const int64_t length = bound[1] ? int_argument(*bound[1], "length") : 255;
  const std::string end = bound[3] ? text_argument(*bound[3], "end") : "...";
  const int64_t leeway = bound[4] && !bound[4]->is_none() ? int_argument(*bound[4], "leeway") : 5;
  const int64_t keep = length - count_code_points(end);
  if (keep < 0) fault("truncate: the length {} is shorter than the end '{}'", length, end);
  if (leeway < 0) fault("truncate: the leeway {} is negative", leeway);
  if (bound[0]->code_points() <= length + leeway) return *bound[0];
  std::string kept = text.substr(0, byte_of_code_point(text, keep));
  if (!(bound[2] && truth(*bound[2])))
    if (const size_t space = kept.rfind(' '); space != std::string::npos) kept.resize(space);
  return runtime.make_string(kept + end, bound[0]->is_markup());
}

std::string url_quote(const Value& value, bool query) {
  std::string out;
  for (const char c : str_of(value)) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain)
      out += c;
    else if (query && c == ' ')
      out += '+';
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

Value urlencode_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  const Value& value = *bound[0];
  if (value.is_string() || !try_iterate(value)) return runtime.make_string(url_quote(value, false));
  std::string out;
  const auto add = [&](const Value& key, const Value& item) {
    out += (out.empty() ? "" : "&") + url_quote(key, true) + "=" + url_quote(item, true);
  };
  if (value.is_dict()) {
    for (const auto& [key, item] : value.pairs()) add(key, item);
  } else {
    for (const Value& pair : list_of(value)) {
      const Values parts = list_of(pair);
      if (parts.size() != 2) fault("urlencode needs pairs, not {} values", parts.size());
      add(parts[0], parts[1]);
    }
  }
  return runtime.make_string(std::move(out));
}

Value wordcount_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s"}, 1);
  const std::string text = str_of(*bound[0]);
  runtime.step(static_cast<int64_t>(text.size()));
  int64_t count = 0;
  bool within = false;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    const bool word = is_word_character(tokenizer::next_code(at));
    count += word && !within;
    within = word;
  }
  return Value::integer(count);
}

Value filesizeformat_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "binary"}, 1);
  const auto bytes = to_float(*bound[0]);
  if (!bytes) fault("filesizeformat needs a number, not a {}", type_name(*bound[0]));
  const bool binary = bound[1] && truth(*bound[1]);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value::string("1 Byte");
  if (*bytes < base) return runtime.make_string(fmt::format("{} Bytes", whole_of(*bytes).value_or(0)));
  double unit = base;
  for (const char* prefix : {"k", "M", "G", "T", "P", "E", "Z", "Y"}) {
    unit *= base;
    if (*bytes < unit || *prefix == 'Y') {
      const std::string name = binary ? (*prefix == 'k' ? "Ki" : std::string(prefix) + "i") : prefix;
      return runtime.make_string(fmt::format("{:.1f} {}B", base * *bytes / unit, name));
    }
  }
  return Value::string("");
}

// json.dumps with the arguments of transformers' tojson.
Value tojson_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style;
  style.ensure_ascii = bound[1] && truth(*bound[1]);
  style.sort_keys = bound[4] && truth(*bound[4]);
  if (bound[2] && !bound[2]->is_none()) {
    style.spread = true;
    style.item_separator = ",";
    if (bound[2]->is_string()) {
      style.indent = bound[2]->text();
    } else {
      const int64_t width = int_argument(*bound[2], "the indent of 'tojson'");
      if (width > 1000) fault("tojson: an indent of {} is too wide", width);
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound[3] && !bound[3]->is_none()) {
    const Values separators = list_of(*bound[3]);
    if (separators.size() != 2) fault("tojson: separators must be two strings");
    style.item_separator = text_argument(separators[0], "a separator of 'tojson'");
    style.key_separator = text_argument(separators[1], "a separator of 'tojson'");
  }
  return runtime.make_string(json_of(*bound[0], style));
}

constexpr Builtin kTextFilters[] = {
    {"abs", abs_filter},
    {"capitalize", change_filter<capitalize>},
    {"center", center_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"filesizeformat", filesizeformat_filter},
    {"float", float_filter},
    {"forceescape", forceescape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower", change_filter<to_lower>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", change_filter<title_words>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", change_filter<to_upper>},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace quintet::chat::jinja
