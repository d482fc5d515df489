// Case and classes of characters as Python's str methods have them.
#include <utf8proc.h>

#include <algorithm>

#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

struct CaseRun {
  char32_t first, last;
};
struct CaseEntry {
  char32_t from, to[3];
};
#include "chat/jinja/case_table.inc"

template <size_t N>
bool has_code(const CaseRun (&runs)[N], char32_t code) {
  const auto* after = std::upper_bound(std::begin(runs), std::end(runs), code,
                                       [](char32_t c, const CaseRun& run) { return c < run.first; });
  return after != std::begin(runs) && code <= (after - 1)->last;
}

template <size_t N>
void append_mapped(const CaseEntry (&entries)[N], char32_t code, char32_t simple, std::string& out) {
  const auto* entry = std::lower_bound(std::begin(entries), std::end(entries), code,
                                       [](const CaseEntry& e, char32_t c) { return e.from < c; });
  if (entry == std::end(entries) || entry->from != code) return tokenizer::append_utf8(simple, out);
  for (const char32_t each : entry->to)
    if (each != 0) tokenizer::append_utf8(each, out);
}

std::u32string codes_of(std::string_view text) {
  std::u32string codes;
  const char* at = text.data();
  while (at < text.data() + text.size()) codes.push_back(tokenizer::next_code(at));
  return codes;
}

utf8proc_category_t general_category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
bool is_lower_code(char32_t c) {
  return general_category(c) == UTF8PROC_CATEGORY_LL || has_code(kOtherLowercase, c);
}
bool is_upper_code(char32_t c) {
  return general_category(c) == UTF8PROC_CATEGORY_LU || has_code(kOtherUppercase, c);
}
bool is_title_code(char32_t c) { return general_category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_lower_code(c) || is_upper_code(c) || is_title_code(c); }

void append_upper(char32_t c, std::string& out) {
  append_mapped(kUpperEntries, c, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))),
                out);
}
void append_title(char32_t c, std::string& out) {
  append_mapped(kTitleEntries, c, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))),
                out);
}

// A capital sigma at the end of a word becomes a final sigma.
bool is_final_sigma(const std::u32string& codes, size_t i) {
  size_t before = i;
  while (before > 0 && has_code(kCaseIgnorable, codes[before - 1])) --before;
  if (before == 0 || !has_code(kCased, codes[before - 1])) return false;
  size_t after = i + 1;
  while (after < codes.size() && has_code(kCaseIgnorable, codes[after])) ++after;
  return after == codes.size() || !has_code(kCased, codes[after]);
}

void append_lower(const std::u32string& codes, size_t i, std::string& out) {
  if (codes[i] == 0x3A3) return tokenizer::append_utf8(is_final_sigma(codes, i) ? 0x3C2 : 0x3C3, out);
  if (codes[i] == 0x130) {  // the one letter whose small form has two characters
    out += "i\u0307";
    return;
  }
  tokenizer::append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(codes[i]))),
                         out);
}

bool has_class(char32_t c, CharTest test) {
  const utf8proc_category_t category = general_category(c);
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
  const bool numeric = number || has_code(kOtherNumeric, c);
  switch (test) {
    case CharTest::Alnum:
      return letter || numeric;
    case CharTest::Alpha:
      return letter;
    case CharTest::Ascii:
      return c < 0x80;
    case CharTest::Decimal:
      return category == UTF8PROC_CATEGORY_ND;
    case CharTest::Digit:
      return category == UTF8PROC_CATEGORY_ND || has_code(kOtherDigit, c);
    case CharTest::Numeric:
      return numeric;
    case CharTest::Space:
      return is_space(c);
    case CharTest::Printable:
      return c == ' ' || !(category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS);
    default:
      return false;
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  for (const char32_t c : codes_of(text)) append_upper(c, out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  const std::u32string codes = codes_of(text);
  for (size_t i = 0; i < codes.size(); ++i) append_lower(codes, i, out);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const std::u32string codes = codes_of(text);
  bool within = false;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (within)
      append_lower(codes, i, out);
    else
      append_title(codes[i], out);
    within = is_cased(codes[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const std::u32string codes = codes_of(text);
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i == 0)
      append_title(codes[i], out);
    else
      append_lower(codes, i, out);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const std::u32string codes = codes_of(text);
  for (size_t i = 0; i < codes.size(); ++i) {
    if (is_upper_code(codes[i]))
      append_lower(codes, i, out);
    else if (is_lower_code(codes[i]))
      append_upper(codes[i], out);
    else
      tokenizer::append_utf8(codes[i], out);
  }
  return out;
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (const char32_t c : codes_of(text)) {
    utf8proc_int32_t folded[8];
    int last_class = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      tokenizer::append_utf8(static_cast<char32_t>(folded[i]), out);
  }
  return out;
}

bool all_characters(std::string_view text, CharTest test) {
  if (text.empty()) return test == CharTest::Ascii || test == CharTest::Printable;
  const std::u32string codes = codes_of(text);
  if (test == CharTest::Lower || test == CharTest::Upper) {
    bool any = false;
    for (const char32_t c : codes) {
      const bool wrong = test == CharTest::Lower ? is_upper_code(c) : is_lower_code(c);
      if (wrong || is_title_code(c)) return false;
      any = any || (test == CharTest::Lower ? is_lower_code(c) : is_upper_code(c));
    }
    return any;
  }
  if (test == CharTest::Title) {
    bool any = false, within = false;
    for (const char32_t c : codes) {
      if (is_upper_code(c) || is_title_code(c)) {
        if (within) return false;
        any = within = true;
      } else if (is_lower_code(c)) {
        if (!within) return false;
        any = true;
      } else {
        within = false;
      }
    }
    return any;
  }
  return std::all_of(codes.begin(), codes.end(), [&](char32_t c) { return has_class(c, test); });
}

bool is_word_character(char32_t code) { return code == '_' || has_class(code, CharTest::Alnum); }

}  // namespace quintet::chat::jinja
