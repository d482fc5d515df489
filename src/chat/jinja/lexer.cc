#include "chat/jinja/lexer.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    emit(TokenType::End, "", source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t at, std::string_view message) {
    fail_at(source_, static_cast<uint32_t>(at), message);
  }
  Token& emit(TokenType type, std::string text, size_t at) {
    tokens_.push_back({type, std::move(text), {}, static_cast<uint32_t>(at)});
    return tokens_.back();
  }
  bool starts(std::string_view text, size_t at) const { return source_.substr(at).starts_with(text); }
  size_t after_spaces(size_t at) const {
    while (at < source_.size()) {
      const char* here = source_.data() + at;
      if (!is_space(tokenizer::next_code(here))) break;
      at = static_cast<size_t>(here - source_.data());
    }
    return at;
  }

  // Text before a tag that begins at `tag` with `sign` ('-', '+' or 0).
  void data(size_t begin, size_t tag, char sign, bool variable) {
    std::string_view text = source_.substr(begin, tag - begin);
    if (sign == '-') {
      text = strip(text, Side::Right);
    } else if (sign != '+' && !variable) {
      // lstrip_blocks: white space between the start of the line and the tag.
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) emit(TokenType::Data, std::string(text), begin);
  }

  // `%}`, `-%}` with white space after it, `+%}`, or `%}` with one line break: the byte after it.
  std::optional<size_t> block_end(size_t at, std::string_view closing) const {
    if (at < source_.size() && source_[at] == '+' && starts(closing, at + 1)) return at + 3;
    if (at < source_.size() && source_[at] == '-' && starts(closing, at + 1)) return after_spaces(at + 3);
    if (!starts(closing, at)) return std::nullopt;
    at += 2;
    return at < source_.size() && source_[at] == '\n' ? at + 1 : at;
  }

  void move_to(size_t at) {
    line_starting_ = at > 0 && source_[at - 1] == '\n';
    at_ = at;
  }

  // Whether a tag `{% word %}` begins at `tag`; the byte after `word` and the white space around it.
  std::optional<size_t> tag_word(size_t tag, std::string_view word) const {
    size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = after_spaces(at);
    if (!starts(word, at)) return std::nullopt;
    return after_spaces(at + word.size());
  }

  void root() {
    const size_t begin = at_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        emit(TokenType::Data, std::string(source_.substr(begin)), begin);
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    size_t inside = tag + 2;
    char sign = 0;
    if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+'))
      sign = source_[inside++];
    data(begin, tag, sign, kind == '{');
    if (kind == '#') return comment(tag, inside);
    if (kind == '%' && raw(tag)) return;
    emit(kind == '{' ? TokenType::VariableBegin : TokenType::BlockBegin, "", tag);
    move_to(inside);
    expression(tag, kind == '{');
  }

  void comment(size_t tag, size_t at) {
    for (; at < source_.size(); ++at)
      if (const auto end = block_end(at, "#}")) return move_to(*end);
    fail(tag, "the comment that begins here has no end '#}'");
  }

  bool raw(size_t tag) {
    const auto word = tag_word(tag, "raw");
    if (!word) return false;
    size_t begin;
    if (starts("-%}", *word))
      begin = after_spaces(*word + 3);
    else if (starts("%}", *word))
      begin = *word + 2;
    else
      return false;
    move_to(begin);
    for (size_t at = begin; (at = source_.find("{%", at)) != std::string_view::npos; ++at) {
      const auto after = tag_word(at, "endraw");
      const auto end = after ? block_end(*after, "%}") : std::nullopt;
      if (!end) continue;
      const char sign = source_[at + 2];
      data(begin, at, sign == '-' || sign == '+' ? sign : '\0', false);
      move_to(*end);
      return true;
    }
    fail(tag, "the raw block that begins here has no '{% endraw %}'");
  }

  void expression(size_t tag, bool variable) {
    std::string open;  // brackets that wait for their end
    for (;;) {
      if (at_ >= source_.size())
        fail(tag, fmt::format("the tag that begins here has no end '{}'", variable ? "}}" : "%}"));
      if (open.empty()) {
        if (variable && (starts("}}", at_) || starts("-}}", at_))) {
          emit(TokenType::VariableEnd, "", at_);
          return move_to(source_[at_] == '-' ? after_spaces(at_ + 3) : at_ + 2);
        }
        if (const auto end = variable ? std::nullopt : block_end(at_, "%}")) {
          emit(TokenType::BlockEnd, "", at_);
          return move_to(*end);
        }
      }
      const size_t after = after_spaces(at_);
      if (after > at_) {
        at_ = after;
        continue;
      }
      const char c = source_[at_];
      if (is_digit(c))
        number();
      else if (is_name_start(c))
        name();
      else if (c == '\'' || c == '"')
        string(c);
      else
        op(open);
    }
  }

  void name() {
    const size_t begin = at_;
    while (at_ < source_.size() && is_name_part(source_[at_])) ++at_;
    if (at_ < source_.size() && static_cast<uint8_t>(source_[at_]) >= 0x80)
      fail(at_, "names in templates have ASCII letters, digits and underscores only");
    emit(TokenType::Name, std::string(source_.substr(begin, at_ - begin)), begin);
  }

  // The end of digits that may have single underscores between them.
  size_t digits(size_t at, int base) const {
    const auto good = [&](size_t i) {
      const int value = i < source_.size() ? hex_value(source_[i]) : -1;
      return value >= 0 && value < base;
    };
    if (!good(at)) return at;
    ++at;
    for (;;) {
      if (good(at))
        ++at;
      else if (at < source_.size() && source_[at] == '_' && good(at + 1))
        at += 2;
      else
        return at;
    }
  }

  void number() {
    const size_t begin = at_;
    if (begin == 0 || source_[begin - 1] != '.') {  // else it is an index such as a.0.1
      size_t end = digits(begin, 10);
      bool real = false;
      if (end < source_.size() && source_[end] == '.' && digits(end + 1, 10) > end + 1) {
        end = digits(end + 1, 10);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (digits(exponent, 10) > exponent) {
          end = digits(exponent, 10);
          real = true;
        }
      }
      if (real) return real_number(begin, end);
    }
    int base = 10;
    size_t first = begin, end;
    const auto letter =
        begin + 1 < source_.size() && source_[begin] == '0' ? source_[begin + 1] | 0x20 : '\0';
    if (letter == 'x' || letter == 'o' || letter == 'b') {
      const int its = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
      size_t from = begin + 2;
      if (from < source_.size() && source_[from] == '_') ++from;
      if (digits(from, its) > from) {
        base = its;
        first = from;
      }
    }
    if (base != 10)
      end = digits(first, base);
    else if (source_[begin] == '0')
      end = digits(begin, 1);  // zeros only
    else
      end = digits(begin, 10);
    std::string text;
    for (const char c : source_.substr(first, end - first))
      if (c != '_') text += c;
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
      fail(begin, fmt::format("the integer {} does not fit 64 bits", text));
    emit(TokenType::Integer, "", begin).number = Value::integer(value);
    at_ = end;
  }

  void real_number(size_t begin, size_t end) {
    std::string text;
    for (const char c : source_.substr(begin, end - begin))
      if (c != '_') text += c;
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc()) fail(begin, fmt::format("the number {} is too large or too small", text));
    emit(TokenType::Float, "", begin).number = Value::number(value);
    at_ = end;
  }

  char32_t hex_code(size_t& at, int count, size_t escape) {
    char32_t code = 0;
    for (int i = 0; i < count; ++i, ++at) {
      const int value = at < source_.size() ? hex_value(source_[at]) : -1;
      if (value < 0) fail(escape, fmt::format("this escape needs {} hexadecimal digits", count));
      code = code << 4 | static_cast<char32_t>(value);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(escape, "this escape is not a character that UTF-8 can hold");
    return code;
  }

  void string(char quote) {
    const size_t begin = at_++;
    std::string value;
    for (;;) {
      if (at_ >= source_.size()) fail(begin, "the string that begins here has no end");
      const char c = source_[at_];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        ++at_;
        continue;
      }
      const size_t escape = at_++;
      if (at_ >= source_.size()) fail(begin, "the string that begins here has no end");
      append_escape(escape, value);
    }
    ++at_;
    emit(TokenType::String, std::move(value), begin);
  }

  void append_escape(size_t escape, std::string& value) {
    const char c = source_[at_];
    static constexpr std::string_view from = "abfnrtv\\'\"", to = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t known = from.find(c); known != std::string_view::npos) {
      value += to[known];
      ++at_;
    } else if (c == '\n') {
      ++at_;  // continues on the next line
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      tokenizer::append_utf8(hex_code(at_, c == 'x' ? 2 : c == 'u' ? 4 : 8, escape), value);
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int i = 0; i < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i)
        code = code << 3 | static_cast<char32_t>(source_[at_++] - '0');
      tokenizer::append_utf8(code, value);
    } else if (c == 'N') {
      fail(escape, "the escape \\N{...} is not supported; write the character itself");
    } else if (static_cast<uint8_t>(c) < 0x80) {
      value += '\\';  // an unknown escape stays as it is
      value += c;
      ++at_;
    } else {
      // Jinja writes the character as an escape before it reads escapes, so the backslash takes that one's.
      const char* here = source_.data() + at_;
      const auto code = static_cast<uint32_t>(tokenizer::next_code(here));
      at_ = static_cast<size_t>(here - source_.data());
      value += code < 0x100     ? fmt::format("\\x{:02x}", code)
               : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                : fmt::format("\\U{:08x}", code);
    }
  }

  void op(std::string& open) {
    static constexpr std::string_view two[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view text : two)
      if (starts(text, at_)) {
        emit(TokenType::Operator, std::string(text), at_);
        at_ += 2;
        return;
      }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      fail(at_, fmt::format("unexpected character '{}'", base::printable(source_.substr(at_, 1))));
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(at_, fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail(at_, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    emit(TokenType::Operator, std::string(1, c), at_++);
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  // the last tag took the line break after it, or there is none yet
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string storage, out;
  const std::string_view text = tokenizer::valid_utf8(source, storage);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && i > 0 && text[i - 1] == '\r') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string position_text(std::string_view source, uint32_t at) {
  const std::string_view before = source.substr(0, std::min<size_t>(at, source.size()));
  int64_t line = 1;
  for (const char c : before) line += c == '\n';
  const size_t newline = before.rfind('\n');
  const std::string_view column = newline == std::string_view::npos ? before : before.substr(newline + 1);
  return fmt::format("line {}, column {}", line, count_code_points(column) + 1);
}

void fail_at(std::string_view source, uint32_t at, std::string_view message) {
  base::fail_user("chat template, {}: {}", position_text(source, at), message);
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace quintet::chat::jinja
