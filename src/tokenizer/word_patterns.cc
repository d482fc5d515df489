#include "tokenizer/word_patterns.h"

#include <utility>

#include "tokenizer/expressions.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

using Contractions = WordPattern::Contractions;

bool is_break(char c) { return c == '\r' || c == '\n'; }

// A position in the text, with the class of the character there.
struct Cursor {
  const char* at;
  const char* end;

  bool done() const { return at == end; }
  uint8_t cls() const {
    const char* p = at;
    return char_class(next_code(p));
  }
  void skip() { at += utf8_length(*at); }
  // Moves past every character with one of these bits.
  void skip_while(uint8_t bits) {
    while (at != end && (cls() & bits)) skip();
  }
  void skip_others() {  // neither white space nor letter nor number
    while (at != end && !(cls() & (kSpace | kLetter | kNumber))) skip();
  }
};

// The length of a contraction at the start of the text, or 0. Ignoring case, the long s (U+017F) is an s.
size_t contraction(std::string_view text, bool any_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return any_case && text.substr(1, 2) == "\u017F" ? 3 : 0;
  }
}

// U*L+ or, if that fails, U+L* of a cased word; null if neither is there. `first` selects the form.
const char* cased_word(Cursor from, bool first) {
  Cursor upper = from;
  const char* last_lower = nullptr;  // the end of the last character that could also be of L
  while (!upper.done()) {
    const uint8_t cls = upper.cls();
    if (!(cls & kUpper)) break;
    upper.skip();
    if (cls & kLower) last_lower = upper.at;
  }
  Cursor lower = upper;
  lower.skip_while(kLower);
  if (!first) return upper.at == from.at ? nullptr : lower.at;
  return lower.at != upper.at ? lower.at : last_lower;
}

// A word of letters at the start, with its prefix; null if there is none.
const char* word(const WordPattern& pattern, Cursor start) {
  const uint8_t cls = start.cls();
  const bool may_prefix =
      pattern.any_prefix ? !(cls & (kLetter | kNumber)) && !is_break(*start.at) : *start.at == ' ';
  Cursor inner = start;
  if (may_prefix) inner.skip();
  if (!pattern.cased) {
    if (inner.done() || !(inner.cls() & kLetter)) return nullptr;
    inner.skip_while(kLetter);
    return inner.at;
  }
  for (const bool first : {true, false}) {
    if (may_prefix && !inner.done())
      if (const char* end = cased_word(inner, first)) return end;
    if (const char* end = cased_word(start, first)) return end;
  }
  return nullptr;
}

// White space: what precedes the last line break, or all but the last character before a word.
const char* white_space(const WordPattern& pattern, Cursor start) {
  Cursor run = start;
  const char *after_break = nullptr, *last = start.at;
  while (!run.done() && (run.cls() & kSpace)) {
    last = run.at;
    const bool line_break = is_break(*run.at);
    run.skip();
    if (line_break) after_break = run.at;
  }
  if (pattern.whole_tail && run.done()) return run.at;
  if (pattern.line_breaks && after_break) return after_break;
  return run.done() || last == start.at ? run.at : last;
}

constexpr WordPattern kGpt2Pattern = {.contractions = Contractions::lower_case};
constexpr WordPattern kLlama3Pattern = {
    .contractions = Contractions::any_case, .any_prefix = true, .digits = 3, .line_breaks = true};
constexpr WordPattern with_digits(WordPattern pattern, int digits) {
  pattern.digits = digits;
  return pattern;
}
constexpr WordPattern with_whole_tail(WordPattern pattern) {
  pattern.whole_tail = true;
  return pattern;
}
constexpr WordPattern kCased = {
    .cased = true, .any_prefix = true, .digits = 1, .slash_tail = true, .line_breaks = true};
constexpr WordPattern with_endings(WordPattern pattern) {
  pattern.contractions = Contractions::any_case_after_word;
  return pattern;
}

constexpr std::pair<std::string_view, WordPattern> kKnown[] = {
    {kGpt2, kGpt2Pattern},
    {kLlama3, kLlama3Pattern},
    {kQwen2, with_digits(kLlama3Pattern, 1)},
    {kCl100k, kLlama3Pattern},
    {kO200k, with_endings(with_digits(kCased, 3))},
    {kTekken, kCased},
};

}  // namespace

std::optional<WordPattern> known_pattern(std::string_view expression) {
  for (const auto& [known, pattern] : kKnown)
    if (expression == known) return pattern;
  return std::nullopt;
}

WordPattern gpt2_pattern() { return kGpt2Pattern; }
WordPattern llama3_pattern() { return kLlama3Pattern; }
WordPattern qwen2_pattern() { return with_digits(kLlama3Pattern, 1); }
WordPattern cl100k_pattern() { return with_whole_tail(kLlama3Pattern); }
WordPattern o200k_pattern() { return with_endings(with_digits(kCased, 3)); }

size_t first_piece(const WordPattern& pattern, std::string_view text) {
  const Cursor start{text.data(), text.data() + text.size()};
  const auto length = [&](const char* end) { return static_cast<size_t>(end - start.at); };
  const bool any_case = pattern.contractions != Contractions::lower_case;
  if (pattern.contractions == Contractions::lower_case || pattern.contractions == Contractions::any_case)
    if (const size_t n = contraction(text, any_case)) return n;

  if (const char* end = word(pattern, start)) {
    if (pattern.contractions == Contractions::any_case_after_word)
      end += contraction({end, static_cast<size_t>(start.end - end)}, true);
    return length(end);
  }

  Cursor inner = start;
  const bool space = *start.at == ' ';
  if (pattern.digits > 0) {
    for (int i = 0; i < pattern.digits && !inner.done() && (inner.cls() & kNumber); ++i) inner.skip();
    if (inner.at != start.at) return length(inner.at);
  } else {
    if (space) inner.skip();
    const char* digits = inner.at;
    inner.skip_while(kNumber);
    if (inner.at != digits) return length(inner.at);
  }

  inner = start;
  if (space) inner.skip();
  const char* others = inner.at;
  inner.skip_others();
  if (inner.at != others) {
    if (pattern.line_breaks)
      while (!inner.done() && (is_break(*inner.at) || (pattern.slash_tail && *inner.at == '/'))) ++inner.at;
    return length(inner.at);
  }
  return length(white_space(pattern, start));
}

}  // namespace quintet::tokenizer
