#include "chat/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

using tokenizer::append_utf8;
using tokenizer::next_code;

bool in_set(std::string_view set, std::string_view character) {
  for (size_t at = 0; at < set.size();) {
    const auto length = static_cast<size_t>(tokenizer::utf8_length(set[at]));
    if (set.substr(at, length) == character) return true;
    at += length;
  }
  return false;
}

template <class Drop>
std::string_view strip_where(std::string_view text, Side side, Drop drop) {
  if (side != Side::Right)
    while (!text.empty()) {
      const auto length = static_cast<size_t>(tokenizer::utf8_length(text[0]));
      if (!drop(text.substr(0, length))) break;
      text.remove_prefix(length);
    }
  if (side != Side::Left)
    while (!text.empty()) {
      const size_t last = tokenizer::last_char(text);
      if (!drop(text.substr(last))) break;
      text = text.substr(0, last);
    }
  return text;
}

std::string repr_text(std::string_view text) {
  const bool prefer_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = prefer_double ? '"' : '\'';
  std::string out(1, quote);
  const char* at = text.data();
  while (at < text.data() + text.size()) {
    const char32_t code = next_code(at);
    if (code == '\\' || code == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else {
      std::string character;
      append_utf8(code, character);
      if (all_characters(character, CharTest::Printable))
        out += character;
      else if (code < 0x100)
        out += fmt::format("\\x{:02x}", static_cast<uint32_t>(code));
      else if (code < 0x10000)
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
      else
        out += fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
    }
  }
  return out + quote;
}

void append_items(const Values& items, std::string& out) {
  const char* comma = "";
  for (const Value& item : items) {
    out += comma + repr_of(item);
    comma = ", ";
  }
}

void json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  const char* at = text.data();
  while (at < text.data() + text.size()) {
    const char* begin = at;
    const char32_t code = next_code(at);
    switch (code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default: {
        const auto value = static_cast<uint32_t>(code);
        if (value < 0x20 || (ensure_ascii && value >= 0x7F && value < 0x10000))
          out += fmt::format("\\u{:04x}", value);
        else if (ensure_ascii && value >= 0x10000)
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((value - 0x10000) >> 10),
                             0xDC00 + ((value - 0x10000) & 0x3FF));
        else
          out.append(begin, at);
      }
    }
  }
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

std::string json_key(const Value& key) {
  switch (key.kind()) {
    case Kind::Str:
      return key.text();
    case Kind::None:
      return "null";
    case Kind::Bool:
      return key.as_bool() ? "true" : "false";
    case Kind::Int:
      return fmt::format("{}", key.as_int());
    case Kind::Float:
      return json_float(key.as_float());
    default:
      fault("tojson: the keys of a dict must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void json_value(const Value& value, const JsonStyle& style, int level, std::string& out) {
  const auto line = [&](int depth) {
    if (!style.spread) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style.indent;
  };
  switch (value.kind()) {
    case Kind::None:
      out += "null";
      return;
    case Kind::Bool:
      out += value.as_bool() ? "true" : "false";
      return;
    case Kind::Int:
      out += fmt::format("{}", value.as_int());
      return;
    case Kind::Float:
      out += json_float(value.as_float());
      return;
    case Kind::Str:
      json_string(value.text(), style.ensure_ascii, out);
      return;
    case Kind::List:
    case Kind::Tuple: {
      if (value.items().empty()) {
        out += "[]";
        return;
      }
      out += '[';
      bool first = true;
      for (const Value& item : value.items()) {
        if (!first) out += style.item_separator;
        first = false;
        line(level + 1);
        json_value(item, style, level + 1, out);
      }
      line(level);
      out += ']';
      return;
    }
    case Kind::Dict: {
      auto pairs = value.pairs();
      if (pairs.empty()) {
        out += "{}";
        return;
      }
      if (style.sort_keys)
        std::stable_sort(pairs.begin(), pairs.end(),
                         [](const auto& a, const auto& b) { return order(a.first, b.first) == -1; });
      out += '{';
      bool first = true;
      for (const auto& [key, item] : pairs) {
        if (!first) out += style.item_separator;
        first = false;
        line(level + 1);
        json_string(json_key(key), style.ensure_ascii, out);
        out += style.key_separator;
        json_value(item, style, level + 1, out);
      }
      line(level);
      out += '}';
      return;
    }
    default:
      fault("tojson: an object of type {} is not JSON{}", type_name(value),
            value.is_undefined() ? ": " + value.why_undefined() : "");
  }
}

}  // namespace

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

size_t byte_of_code_point(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += static_cast<size_t>(tokenizer::utf8_length(text[at]));
  return at;
}

bool is_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_where(text, side, [](std::string_view character) {
    const char* at = character.data();
    return is_space(next_code(at));
  });
}

std::string_view strip_set(std::string_view text, std::string_view set, Side side) {
  return strip_where(text, side, [&](std::string_view character) { return in_set(set, character); });
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits_begin = scientific.data() + e + 1 + (scientific[e + 1] == '+' ? 1 : 0);
  std::from_chars(digits_begin, scientific.data() + scientific.size(), exponent);
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string str_of(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return repr_of(value);
}

std::string repr_of(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "None";
    case Kind::Bool:
      return value.as_bool() ? "True" : "False";
    case Kind::Int:
      return fmt::format("{}", value.as_int());
    case Kind::Float:
      return float_text(value.as_float());
    case Kind::Str:
      return value.is_markup() ? "Markup(" + repr_text(value.text()) + ")" : repr_text(value.text());
    case Kind::List:
    case Kind::Tuple: {
      const bool tuple = value.kind() == Kind::Tuple;
      std::string out = tuple ? "(" : "[";
      append_items(value.items(), out);
      if (tuple && value.items().size() == 1) out += ",";
      return out + (tuple ? ")" : "]");
    }
    case Kind::Dict: {
      std::string out = "{";
      const char* comma = "";
      for (const auto& [key, item] : value.pairs()) {
        out += comma + repr_of(key) + ": " + repr_of(item);
        comma = ", ";
      }
      return out + "}";
    }
    case Kind::Object:
      return value.as<ObjectHeap>()->repr();
  }
  return "";
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string escaped(const Value& value) {
  return value.is_markup() ? value.text() : escape_html(str_of(value));
}

std::string json_of(const Value& value, const JsonStyle& style) {
  std::string out;
  json_value(value, style, 0, out);
  return out;
}

}  // namespace quintet::chat::jinja
