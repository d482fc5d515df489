// Methods of Python's str.
#include <algorithm>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

// The value that the method is called on, and its arguments by position or by name.
const Value& self_of(const Call& call) { return call.args[0]; }
Call arguments_of(const Call& call) {
  return {call.name, Values(call.args.begin() + 1, call.args.end()), call.kwargs};
}
Value like_self(Runtime& runtime, const Call& call, std::string text) {
  return runtime.make_string(std::move(text), self_of(call).is_markup());
}
// An argument as text of the same kind: escaped if the value is.
std::string text_like_self(const Call& call, const Value& argument) {
  const std::string& text = text_argument(argument, fmt::format("an argument of str.{}", call.name));
  return self_of(call).is_markup() ? escaped(argument) : text;
}

template <std::string (*Change)(std::string_view)>
Value change_method(Runtime& runtime, Call& call) {
  arguments_of(call).bind({}, 0);
  runtime.step(static_cast<int64_t>(self_of(call).text().size()));
  return like_self(runtime, call, Change(self_of(call).text()));
}

template <CharTest Test>
Value class_method(Runtime&, Call& call) {
  arguments_of(call).bind({}, 0);
  return Value::boolean(all_characters(self_of(call).text(), Test));
}

template <Side Which>
Value strip_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"chars"}, 0);
  const std::string& text = self_of(call).text();
  if (!bound[0] || bound[0]->is_none()) return like_self(runtime, call, std::string(strip(text, Which)));
  return like_self(runtime, call, std::string(strip_set(text, text_argument(*bound[0], "chars"), Which)));
}

// The part of the text between code points `begin` and `end`, where these are given.
struct Window {
  size_t begin = 0, end = 0;
  int64_t first = 0;  // code points before it
  bool valid = true;  // false: the start is past the end
};
Window window_of(const Call& call, const std::optional<Value>& begin, const std::optional<Value>& end) {
  const std::string& text = self_of(call).text();
  const int64_t length = self_of(call).code_points();
  const auto place = [&](const std::optional<Value>& part, int64_t fallback) {
    if (!part || part->is_none()) return fallback;
    int64_t index = int_argument(*part, fmt::format("a position of str.{}", call.name));
    if (index < 0) index = std::max<int64_t>(index < -length ? 0 : index + length, 0);
    return index;
  };
  const int64_t from = place(begin, 0), to = std::min(place(end, length), length);
  Window window;
  window.valid = from <= to;
  if (!window.valid) return window;
  window.first = from;
  window.begin = byte_of_code_point(text, from);
  window.end = byte_of_code_point(text, to);
  return window;
}

template <bool Right, bool Raise>
Value find_text_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"sub", "start", "end"}, 1);
  const std::string& text = self_of(call).text();
  const std::string& sub = text_argument(*bound[0], "sub");
  runtime.step(static_cast<int64_t>(text.size()) / 16);
  const Window window = window_of(call, bound[1], bound[2]);
  if (window.valid) {
    const std::string_view part = std::string_view(text).substr(window.begin, window.end - window.begin);
    const size_t at = Right ? part.rfind(sub) : part.find(sub);
    if (at != std::string_view::npos)
      return Value::integer(window.first + count_code_points(part.substr(0, at)));
  }
  if (Raise) fault("str.{}: substring not found", call.name);
  return Value::integer(-1);
}

Value count_text_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"sub", "start", "end"}, 1);
  const std::string& text = self_of(call).text();
  const std::string& sub = text_argument(*bound[0], "sub");
  runtime.step(static_cast<int64_t>(text.size()) / 16);
  const Window window = window_of(call, bound[1], bound[2]);
  if (!window.valid) return Value::integer(0);
  const std::string_view part = std::string_view(text).substr(window.begin, window.end - window.begin);
  if (sub.empty()) return Value::integer(count_code_points(part) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = part.find(sub, at)) != std::string_view::npos; at += sub.size()) ++count;
  return Value::integer(count);
}

template <bool End>
Value starts_method(Runtime&, Call& call) {
  const auto bound = arguments_of(call).bind({"prefix", "start", "end"}, 1);
  const Window window = window_of(call, bound[1], bound[2]);
  const auto matches = [&](const Value& what) {
    const std::string& text = text_argument(what, fmt::format("the argument of str.{}", call.name));
    if (!window.valid) return false;
    const auto part = std::string_view(self_of(call).text()).substr(window.begin, window.end - window.begin);
    return End ? part.ends_with(text) : part.starts_with(text);
  };
  if (bound[0]->kind() == Kind::Tuple)
    return Value::boolean(std::any_of(bound[0]->items().begin(), bound[0]->items().end(), matches));
  return Value::boolean(matches(*bound[0]));
}

Value split_on_space(Runtime& runtime, const Call& call, int64_t most, bool right) {
  std::string_view left = strip(self_of(call).text(), right ? Side::Right : Side::Left);
  Values parts;
  while (!left.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(like_self(runtime, call, std::string(strip(left, right ? Side::Right : Side::Left))));
      break;
    }
    // One word from the side, found by skipping whitespace.
    size_t at = right ? left.size() : 0;
    while (right ? at > 0 : at < left.size()) {
      const size_t begin = right ? tokenizer::last_char(left.substr(0, at)) : at;
      const char* here = left.data() + begin;
      if (is_space(tokenizer::next_code(here))) break;
      at = right ? begin : static_cast<size_t>(here - left.data());
    }
    parts.push_back(like_self(runtime, call, std::string(right ? left.substr(at) : left.substr(0, at))));
    left = right ? strip(left.substr(0, at), Side::Right) : strip(left.substr(at), Side::Left);
  }
  if (right) std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

template <bool Right>
Value split_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"sep", "maxsplit"}, 0);
  const int64_t most = bound[1] ? int_argument(*bound[1], "maxsplit") : -1;
  runtime.step(static_cast<int64_t>(self_of(call).text().size()) / 4);
  if (!bound[0] || bound[0]->is_none()) return split_on_space(runtime, call, most, Right);
  const std::string& separator = text_argument(*bound[0], "sep");
  if (separator.empty()) fault("str.{}: the separator is empty", call.name);
  std::string_view left = self_of(call).text();
  Values parts;
  for (;;) {
    const size_t at = most >= 0 && static_cast<int64_t>(parts.size()) == most ? std::string_view::npos
                      : Right                                                 ? left.rfind(separator)
                                                                              : left.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(like_self(runtime, call,
                              std::string(Right ? left.substr(at + separator.size()) : left.substr(0, at))));
    left = Right ? left.substr(0, at) : left.substr(at + separator.size());
  }
  parts.push_back(like_self(runtime, call, std::string(left)));
  if (Right) std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

template <bool Right>
Value partition_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"sep"}, 1);
  const std::string& separator = text_argument(*bound[0], "sep");
  if (separator.empty()) fault("str.{}: the separator is empty", call.name);
  const std::string& text = self_of(call).text();
  const auto part = [&](std::string piece) { return like_self(runtime, call, std::move(piece)); };
  const size_t at = Right ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos)
    return Right ? Value::tuple({part(""), part(""), part(text)})
                 : Value::tuple({part(text), part(""), part("")});
  return Value::tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

bool ends_line(char32_t c) {
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Value splitlines_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"keepends"}, 0);
  const bool keep = bound[0] && truth(*bound[0]);
  const std::string& text = self_of(call).text();
  runtime.step(static_cast<int64_t>(text.size()) / 4);
  Values lines;
  const char *line = text.data(), *at = line, *end = line + text.size();
  while (at < end) {
    const char* before = at;
    const char32_t code = tokenizer::next_code(at);
    if (!ends_line(code)) continue;
    if (code == '\r' && at < end && *at == '\n') ++at;
    lines.push_back(like_self(runtime, call, std::string(line, keep ? at : before)));
    line = at;
  }
  if (line < end) lines.push_back(like_self(runtime, call, std::string(line, end)));
  return Value::list(std::move(lines));
}

std::string replaced(Runtime& runtime, const std::string& text, const std::string& from,
                     const std::string& to, int64_t most) {
  int64_t count = 0;
  std::string out;
  const auto found = [&] { return most < 0 || count < most; };
  const auto append = [&](std::string_view piece) {
    runtime.step(static_cast<int64_t>(piece.size()) / 16 + 1);
    out += piece;
    if (static_cast<int64_t>(out.size()) > kMaxText) runtime.require_text(kMaxText + 1);
  };
  if (from.empty()) {
    for (size_t at = 0;; ++count) {
      if (found()) append(to);
      if (at >= text.size()) return out;
      const auto size = static_cast<size_t>(tokenizer::utf8_length(text[at]));
      append(std::string_view(text).substr(at, size));
      at += size;
    }
  }
  size_t at = 0;
  for (size_t next; found() && (next = text.find(from, at)) != std::string::npos; ++count) {
    append(std::string_view(text).substr(at, next - at));
    append(to);
    at = next + from.size();
  }
  append(std::string_view(text).substr(at));
  return out;
}

Value replace_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"old", "new", "count"}, 2);
  const int64_t most = bound[2] ? int_argument(*bound[2], "count") : -1;
  return like_self(runtime, call,
                   replaced(runtime, self_of(call).text(), text_like_self(call, *bound[0]),
                            text_like_self(call, *bound[1]), most));
}

Value join_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"iterable"}, 1);
  const auto iterator = iterate(*bound[0]);
  std::string out;
  int64_t count = 0;
  for (Value item; iterator->next(item); ++count) {
    if (!item.is_string() && !self_of(call).is_markup())
      fault("str.join: item {} is a {}, not a string", count, type_name(item));
    if (count > 0) out += self_of(call).text();
    out += self_of(call).is_markup() ? escaped(item) : item.text();
    runtime.step(1);
    if (static_cast<int64_t>(out.size()) > kMaxText) runtime.require_text(kMaxText + 1);
  }
  return like_self(runtime, call, std::move(out));
}

enum class Align { Left, Right, Center };
template <Align To>
Value pad_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"width", "fillchar"}, 1);
  const int64_t width = int_argument(*bound[0], "width");
  const std::string fill = bound[1] ? text_argument(*bound[1], "fillchar") : " ";
  if (count_code_points(fill) != 1) fault("str.{}: the fill must be one character", call.name);
  const int64_t missing = width - self_of(call).code_points();
  if (missing <= 0) return self_of(call);
  // Python puts the odd one out on the left where the width is odd.
  const int64_t left = To == Align::Left    ? 0
                       : To == Align::Right ? missing
                                            : missing / 2 + (missing & width & 1);
  runtime.require_text(std::min(missing, kMaxText + 1) * static_cast<int64_t>(fill.size()));
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self_of(call).text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return like_self(runtime, call, std::move(out));
}

Value zfill_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"width"}, 1);
  const int64_t missing = int_argument(*bound[0], "width") - self_of(call).code_points();
  if (missing <= 0) return self_of(call);
  runtime.require_text(missing);
  std::string text = self_of(call).text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  text.insert(sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return like_self(runtime, call, std::move(text));
}

template <bool Suffix>
Value remove_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({Suffix ? "suffix" : "prefix"}, 1);
  const std::string& part = text_argument(*bound[0], "the argument");
  const std::string& text = self_of(call).text();
  if (Suffix && !part.empty() && text.ends_with(part))
    return like_self(runtime, call, text.substr(0, text.size() - part.size()));
  if (!Suffix && text.starts_with(part)) return like_self(runtime, call, text.substr(part.size()));
  return self_of(call);
}

Value expandtabs_method(Runtime& runtime, Call& call) {
  const auto bound = arguments_of(call).bind({"tabsize"}, 0);
  const int64_t size = bound[0] ? int_argument(*bound[0], "tabsize") : 8;
  std::string out;
  int64_t column = 0;
  for (const char c : self_of(call).text()) {
    if (c != '\t') {
      out += c;
      if (c == '\n' || c == '\r')
        column = 0;
      else
        column += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
      continue;
    }
    const int64_t spaces = size > 0 ? size - column % size : 0;
    runtime.require_text(static_cast<int64_t>(out.size()) + spaces);
    out.append(static_cast<size_t>(spaces), ' ');
    column += spaces;
  }
  return like_self(runtime, call, std::move(out));
}

Value format_method(Runtime& runtime, Call& call) {
  if (self_of(call).is_markup()) fault("str.format on a string marked as safe is not supported");
  return runtime.make_string(brace_format(runtime, self_of(call).text(), arguments_of(call)));
}

Value isidentifier_method(Runtime&, Call& call) {
  const std::string& text = self_of(call).text();
  if (!all_characters(text, CharTest::Ascii)) fault("str.isidentifier is supported for ASCII only");
  const auto part = [](char c) { return is_word_character(static_cast<char32_t>(c)); };
  return Value::boolean(!text.empty() && !(text[0] >= '0' && text[0] <= '9') &&
                        std::all_of(text.begin(), text.end(), part));
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", change_method<capitalize>},
    {"casefold", change_method<case_fold>},
    {"center", pad_method<Align::Center>},
    {"count", count_text_method},
    {"endswith", starts_method<true>},
    {"expandtabs", expandtabs_method},
    {"find", find_text_method<false, false>},
    {"format", format_method},
    {"index", find_text_method<false, true>},
    {"isalnum", class_method<CharTest::Alnum>},
    {"isalpha", class_method<CharTest::Alpha>},
    {"isascii", class_method<CharTest::Ascii>},
    {"isdecimal", class_method<CharTest::Decimal>},
    {"isdigit", class_method<CharTest::Digit>},
    {"isidentifier", isidentifier_method},
    {"islower", class_method<CharTest::Lower>},
    {"isnumeric", class_method<CharTest::Numeric>},
    {"isprintable", class_method<CharTest::Printable>},
    {"isspace", class_method<CharTest::Space>},
    {"istitle", class_method<CharTest::Title>},
    {"isupper", class_method<CharTest::Upper>},
    {"join", join_method},
    {"ljust", pad_method<Align::Left>},
    {"lower", change_method<to_lower>},
    {"lstrip", strip_method<Side::Left>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"replace", replace_method},
    {"rfind", find_text_method<true, false>},
    {"rindex", find_text_method<true, true>},
    {"rjust", pad_method<Align::Right>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Side::Right>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", starts_method<false>},
    {"strip", strip_method<Side::Both>},
    {"swapcase", change_method<swap_case>},
    {"title", change_method<to_title>},
    {"upper", change_method<to_upper>},
    {"zfill", zfill_method},
};

}  // namespace

std::span<const Builtin> string_methods() { return kStringMethods; }

}  // namespace quintet::chat::jinja
