// Code points: UTF-8, general categories (Unicode 16.0) and the classes that splitting text needs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quintet::tokenizer {

enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn,
};
Category category(char32_t code);
// Where each run of code points of one category begins, ascending from 0.
struct CategoryRun {
  char32_t begin;
  Category category;
};
std::span<const CategoryRun> category_runs();

// Bits of a code point's class, from its category; kSpace is the property White_Space.
enum : uint8_t {
  kLetter = 1,   // L*
  kNumber = 2,   // N*
  kSpace = 4,    // White_Space
  kMark = 8,     // M*
  kPunct = 16,   // P*
  kSymbol = 32,  // S*
  kUpper = 64,   // Lu, Lt, Lm, Lo, M*: may begin a cased word
  kLower = 128,  // Ll, Lm, Lo, M*: may continue one
};
namespace detail {
// The class of every code point; 1.1 MB, built before main, of which text touches few pages.
extern const std::array<uint8_t, 0x110000>& kClasses;
}  // namespace detail
inline uint8_t char_class(char32_t code) { return detail::kClasses[code]; }

// \w of the Rust `regex` crate: alphabetic characters, marks, decimal digits, connectors, joiners.
bool is_word(char32_t code);
// As the `tokenizers` package's splitting by punctuation and its normalisers see characters. They know
// older versions of Unicode; ids can only be equal if the same characters are unknown here.
bool is_punctuation(char32_t code);      // of ASCII, or of category P
bool is_mark(char32_t code);             // M*
bool is_nonspacing_mark(char32_t code);  // Mn
bool is_control(char32_t code);          // Cc, Cf, Co, except tab, line feed and carriage return
bool is_undecomposed(char32_t code);     // decomposes or combines, but is left as it is, where it is
char32_t small_letter(char32_t code);

// Reads one code point of valid UTF-8 and moves `at` past it.
inline char32_t next_code(const char*& at) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(at[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t code = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    at += 2;
    return code;
  }
  if (lead < 0xF0) {
    const char32_t code = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    at += 3;
    return code;
  }
  const char32_t code =
      (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
  at += 4;
  return code;
}
// The bytes of the character that begins with `lead`.
inline int utf8_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// Where the last character of a non-empty valid text begins.
inline size_t last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void append_utf8(char32_t code, std::string& text);

// `text` if it is valid UTF-8; else `storage`, which receives the text with U+FFFD for each maximal invalid
// part, as the Unicode standard recommends and Python's errors="replace" does.
std::string_view valid_utf8(std::string_view text, std::string& storage);

}  // namespace quintet::tokenizer
