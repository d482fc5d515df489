// Filters that lay out text (wordwrap, pprint) and those of HTML (striptags, xmlattr).
#include <algorithm>
#include <charconv>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

std::u32string code_points_of(std::string_view text) {
  std::u32string codes;
  for (const char* at = text.data(); at < text.data() + text.size();) codes += tokenizer::next_code(at);
  return codes;
}
std::string text_of(std::u32string_view codes) {
  std::string text;
  for (const char32_t code : codes) tokenizer::append_utf8(code, text);
  return text;
}

// ---- wordwrap: Python's textwrap.wrap of each line

constexpr std::u32string_view kWrapSpace = U"\t\n\v\f\r ";

bool is_wrap_space(char32_t code) { return kWrapSpace.find(code) != std::u32string_view::npos; }
bool is_blank(std::u32string_view chunk) { return std::ranges::all_of(chunk, is_space); }
bool is_letter(char32_t code) {
  return is_word_character(code) && !all_characters(text_of({&code, 1}), CharTest::Decimal);
}
bool is_word_or_mark(char32_t code) {
  return is_word_character(code) || std::u32string_view(U"!\"'&.,?").find(code) != std::u32string_view::npos;
}

// A line in pieces between which it may be broken: the expression `wordsep_re` of textwrap.
class Pieces {
 public:
  Pieces(std::u32string_view line, bool break_on_hyphens) : line_(line), hyphens_(break_on_hyphens) {}

  std::vector<std::u32string> all() const {
    std::vector<std::u32string> pieces;
    for (size_t at = 0; at < line_.size();) {
      const size_t end = end_of(at);
      pieces.emplace_back(line_.substr(at, end - at));
      at = end;
    }
    return pieces;
  }

 private:
  template <class Test>
  bool is(Test test, size_t at) const {
    return at < line_.size() && test(line_[at]);
  }
  bool hyphen(size_t at) const { return at < line_.size() && line_[at] == U'-'; }
  // Where the dash ends that begins here between two words; 0 if there is none.
  size_t dash(size_t at) const {
    if (at == 0 || !hyphen(at) || !is_word_or_mark(line_[at - 1])) return 0;
    size_t end = at;
    while (hyphen(end)) ++end;
    return end - at >= 2 && is(is_word_character, end) ? end : 0;
  }
  // Whether the word may be broken after the hyphen here.
  bool breaks_after(size_t at) const {
    if (!hyphen(at) || at < 2) return false;
    const bool two_letters = is_letter(line_[at - 2]) && is_letter(line_[at - 1]),
               between =
                   at >= 3 && is_letter(line_[at - 3]) && hyphen(at - 2) && is_word_or_mark(line_[at - 1]);
    const bool goes_on =
        is(is_letter, at + 1) && (is(is_letter, at + 2) || (hyphen(at + 2) && is(is_letter, at + 3)));
    return (two_letters || between) && goes_on;
  }
  size_t end_of(size_t at) const {
    size_t end = at;
    if (is_wrap_space(line_[at])) {
      while (is(is_wrap_space, end)) ++end;
      return end;
    }
    if (hyphens_)
      if (const size_t after = dash(at)) return after;
    for (++end; end < line_.size() && !is_wrap_space(line_[end]); ++end) {
      if (!hyphens_) continue;
      if (breaks_after(end)) return end + 1;
      if (dash(end) > 0) return end;
    }
    return end;
  }

  std::u32string_view line_;
  bool hyphens_;
};

struct WrapStyle {
  size_t width = 79;
  bool long_words = true, hyphens = true;
};

// What of a piece longer than a line goes into the `room` that is left.
size_t broken_at(std::u32string_view piece, size_t room, bool hyphens) {
  if (!hyphens || piece.size() <= room || room == 0) return room;
  const size_t hyphen = piece.rfind(U'-', room - 1);
  if (hyphen == std::u32string_view::npos || hyphen == 0) return room;
  const auto head = piece.substr(0, hyphen);
  return head.find_first_not_of(U'-') == std::u32string_view::npos ? room : hyphen + 1;
}

std::vector<std::string> wrapped(std::u32string_view text, const WrapStyle& style) {
  std::vector<std::u32string> pieces = Pieces(text, style.hyphens).all();
  std::reverse(pieces.begin(), pieces.end());
  std::vector<std::string> lines;
  while (!pieces.empty()) {
    if (is_blank(pieces.back()) && !lines.empty()) pieces.pop_back();
    std::vector<std::u32string> line;
    size_t length = 0;
    while (!pieces.empty() && length + pieces.back().size() <= style.width) {
      length += pieces.back().size();
      line.push_back(std::move(pieces.back()));
      pieces.pop_back();
    }
    if (!pieces.empty() && pieces.back().size() > style.width) {
      if (style.long_words) {
        const size_t end = broken_at(pieces.back(), style.width - length, style.hyphens);
        line.push_back(pieces.back().substr(0, end));
        pieces.back().erase(0, end);
      } else if (line.empty()) {
        line.push_back(std::move(pieces.back()));
        pieces.pop_back();
      }
    }
    if (!line.empty() && is_blank(line.back())) line.pop_back();
    if (line.empty()) continue;
    std::string& out = lines.emplace_back();
    for (const std::u32string& piece : line) out += text_of(piece);
  }
  return lines;
}

Value wordwrap_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"}, 1);
  const std::string& text = text_argument(*bound[0], "what 'wordwrap' wraps");
  runtime.step(static_cast<int64_t>(text.size()) * 4);
  WrapStyle style;
  if (bound[1]) {
    const int64_t width = int_argument(*bound[1], "the width of 'wordwrap'");
    if (width < 1) fault("wordwrap: the width is {}, and must be at least 1", width);
    style.width = static_cast<size_t>(width);
  }
  if (bound[2]) style.long_words = truth(*bound[2]);
  if (bound[4]) style.hyphens = truth(*bound[4]);
  const std::string between =
      bound[3] && !bound[3]->is_none() ? text_argument(*bound[3], "the wrapstring of 'wordwrap'") : "\n";
  Call split{"splitlines", {*bound[0]}, {}};
  std::string out;
  bool first = true;
  for (const Value& line : list_of(find_method(*bound[0], "splitlines")->apply(runtime, split))) {
    const std::vector<std::string> lines = wrapped(code_points_of(line.text()), style);
    for (size_t i = 0; i < std::max<size_t>(1, lines.size()); ++i) {
      if (!std::exchange(first, false)) out += between;
      if (i < lines.size()) out += lines[i];
      runtime.require_text(static_cast<int64_t>(out.size()));
    }
  }
  return runtime.make_string(std::move(out));
}

// ---- pprint: Python's pprint.pformat

constexpr int64_t kPrintWidth = 80;

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& runtime) : runtime_(runtime) {}

  void format(const Value& value, int64_t indent, int64_t allowance, int level) {
    const std::string whole = repr(value);
    const bool fits = count_code_points(whole) <= kPrintWidth - indent - allowance;
    if (fits || !(value.is_dict() || value.is_sequence() || (value.is_string() && !value.is_markup())) ||
        value.is_group())
      write(whole);
    else if (value.is_dict())
      format_dict(value, indent, allowance + 1, level + 1);
    else if (value.is_string())
      format_text(value.text(), indent, allowance, level + 1);
    else
      format_items(value, indent, allowance, level + 1);
  }
  std::string take() { return std::move(out_); }

 private:
  void write(std::string_view text) {
    out_ += text;
    runtime_.step(static_cast<int64_t>(text.size()));
    runtime_.require_text(static_cast<int64_t>(out_.size()));
  }
  void write_line(int64_t indent) { write("\n" + std::string(static_cast<size_t>(indent), ' ')); }

  static std::vector<std::pair<Value, Value>> sorted(const Value& dict) {
    std::vector<std::pair<Value, Value>> pairs = dict.pairs();
    std::ranges::stable_sort(pairs, [](const auto& a, const auto& b) {
      try {
        return order(a.first, b.first) < 0;
      } catch (const TemplateFault&) {
        return type_name(a.first) < type_name(b.first);  // as Python sorts what it cannot order
      }
    });
    return pairs;
  }

  // repr(), with the keys of dicts in order.
  std::string repr(const Value& value) {
    runtime_.step();
    std::string text;
    const auto add = [&](const std::string& more) {
      text += (text.size() > 1 ? ", " : "") + more;
      runtime_.require_text(static_cast<int64_t>(text.size()));
    };
    if (value.is_dict()) {
      text = "{";
      for (const auto& [key, each] : sorted(value)) add(repr(key) + ": " + repr(each));
      return text + "}";
    }
    if (!value.is_sequence() || value.is_group()) return repr_of(value);
    const bool is_list = value.kind() == Kind::List;
    text = is_list ? "[" : "(";
    for (const Value& item : value.items()) add(repr(item));
    return text + (is_list ? "]" : value.items().size() == 1 ? ",)" : ")");
  }

  void format_dict(const Value& dict, int64_t indent, int64_t allowance, int level) {
    write("{");
    const auto pairs = sorted(dict);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const std::string key = repr(pairs[i].first);
      if (i > 0) {
        write(",");
        write_line(indent + 1);
      }
      write(key + ": ");
      format(pairs[i].second, indent + 1 + count_code_points(key) + 2, i + 1 == pairs.size() ? allowance : 1,
             level);
    }
    write("}");
  }

  void format_items(const Value& value, int64_t indent, int64_t allowance, int level) {
    const bool is_list = value.kind() == Kind::List;
    const Values& items = value.items();
    const std::string_view end = is_list ? "]" : items.size() == 1 ? ",)" : ")";
    write(is_list ? "[" : "(");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        write(",");
        write_line(indent + 1);
      }
      format(items[i], indent + 1, i + 1 == items.size() ? allowance + static_cast<int64_t>(end.size()) : 1,
             level);
    }
    write(end);
  }

  static std::string quoted(const std::string& text) { return repr_of(Value::string(text)); }

  // A long text as several, of whole lines or else words.
  void format_text(const std::string& text, int64_t indent, int64_t allowance, int level) {
    if (level == 1) ++indent, ++allowance;
    const int64_t width = kPrintWidth - indent;
    std::vector<std::string> chunks;
    Call split{"splitlines", {Value::string(text), Value::boolean(true)}, {}};
    const Values lines = list_of(find_method(split.args[0], "splitlines")->apply(runtime_, split));
    std::string last_repr;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last_line = i + 1 == lines.size();
      last_repr = quoted(lines[i].text());
      if (count_code_points(last_repr) <= width - (last_line ? allowance : 0)) {
        chunks.push_back(last_repr);
        continue;
      }
      const std::vector<std::string> words = words_of(lines[i].text());
      std::string current;
      for (size_t j = 0; j < words.size(); ++j) {
        const int64_t room = width - (j + 1 == words.size() && last_line ? allowance : 0);
        runtime_.step(static_cast<int64_t>(current.size() + words[j].size()));
        if (count_code_points(quoted(current + words[j])) > room) {
          if (!current.empty()) chunks.push_back(quoted(current));
          current = words[j];
        } else {
          current += words[j];
        }
      }
      if (!current.empty()) chunks.push_back(quoted(current));
    }
    if (chunks.size() == 1) return write(last_repr);
    if (level == 1) write("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) write_line(indent);
      write(chunks[i]);
    }
    if (level == 1) write(")");
  }

  // Words with the white space after them.
  static std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    const std::u32string codes = code_points_of(line);
    for (size_t at = 0; at < codes.size();) {
      size_t end = at;
      while (end < codes.size() && !is_space(codes[end])) ++end;
      while (end < codes.size() && is_space(codes[end])) ++end;
      words.push_back(text_of(std::u32string_view(codes).substr(at, end - at)));
      at = end;
    }
    return words;
  }

  Runtime& runtime_;
  std::string out_;
};

Value pprint_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  PrettyPrinter printer(runtime);
  printer.format(*bound[0], 0, 0, 0);
  return runtime.make_string(printer.take());
}

// ---- HTML

// A text without tags and comments, up to the first that does not end.
std::string without_tags(std::string_view text) {
  std::string out;
  size_t at = 0;
  for (size_t start = 0; (start = text.find('<', at)) != std::string_view::npos;) {
    const bool comment = text.substr(start).starts_with("<!--");
    const size_t end = comment ? text.find("-->", start + 4) : text.find('>', start);
    if (end == std::string_view::npos) break;
    out += text.substr(at, start - at);
    at = end + (comment ? 3 : 1);
  }
  return out += text.substr(at);
}

// html.unescape() for the entities that escaping makes, and numbers.
std::string unescaped(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&#34;", "\""}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto* const found =
        std::ranges::find_if(kEntities, [&](const auto& e) { return rest.starts_with(e.first); });
    if (found != std::end(kEntities)) {
      out += found->second;
      at += found->first.size();
      continue;
    }
    if (rest[0] == '&' && rest.size() > 1 &&
        (rest[1] == '#' || static_cast<unsigned>((rest[1] | 32) - 'a') < 26u))
      fault("striptags: the HTML entity '{}' is not supported", rest.substr(0, 12));
    out += text[at++];
  }
  return out;
}

Value striptags_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  const std::string text = without_tags(str_of(*bound[0]));
  runtime.step(static_cast<int64_t>(text.size()));
  std::u32string words;
  for (const char32_t code : code_points_of(text)) {
    if (!is_space(code))
      words += code;
    else if (!words.empty() && words.back() != U' ')
      words += U' ';
  }
  if (words.ends_with(U' ')) words.pop_back();
  return runtime.make_string(unescaped(text_of(words)));
}

Value xmlattr_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"d", "autospace"}, 1);
  if (!bound[0]->is_dict()) fault("xmlattr needs a dict, not a {}", type_name(*bound[0]));
  std::string out;
  for (const auto& [key, value] : bound[0]->pairs()) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = str_of(key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      fault("xmlattr: an attribute cannot have the name {}", repr_of(key));
    out += (out.empty() ? "" : " ") + escaped(key) + "=\"" + escaped(value) + "\"";
    runtime.require_text(static_cast<int64_t>(out.size()));
  }
  if (!out.empty() && (!bound[1] || truth(*bound[1]))) out.insert(0, " ");
  return runtime.make_string(std::move(out));
}

constexpr Builtin kLayoutFilters[] = {
    {"pprint", pprint_filter},
    {"striptags", striptags_filter},
    {"wordwrap", wordwrap_filter},
    {"xmlattr", xmlattr_filter},
};

}  // namespace

std::span<const Builtin> layout_filters() { return kLayoutFilters; }

}  // namespace quintet::chat::jinja
