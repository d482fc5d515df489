// Where the pieces of a known pattern begin within 64 bytes, for what most text is: ASCII. Each class of
// characters is a mask with a bit per byte, and the pattern's rules are shifts and ands of masks, so that a
// piece costs no branch that depends on the text. Gives what first_piece gives, or fewer pieces.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tokenizer/word_patterns.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace quintet::tokenizer {

// Bytes that must be readable at the place that is looked at.
inline constexpr size_t kWindow = 64;

#if defined(__SSE2__)

namespace detail {

struct ByteClasses {
  uint64_t upper, lower, digit, space, line_break, blank, apostrophe, high;  // blank: ' '; high: not ASCII
};

inline ByteClasses classes_of(const char* at) {
  ByteClasses all{};
  for (int part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * part));
    const auto mask = [&](__m128i chosen) {
      return static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(chosen))) << (16 * part);
    };
    // Whether a byte is in [first, first + count): signed comparison of the difference, shifted to the least
    // value.
    const auto in_range = [&](char first, int count) {
      const __m128i shifted = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(-128 - first)));
      return _mm_cmplt_epi8(shifted, _mm_set1_epi8(static_cast<char>(-128 + count)));
    };
    const auto equals = [&](char c) { return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)); };
    const __m128i blank = equals(' ');
    all.upper |= mask(in_range('A', 26));
    all.lower |= mask(in_range('a', 26));
    all.digit |= mask(in_range('0', 10));
    all.space |= mask(_mm_or_si128(in_range('\t', 5), blank));
    all.line_break |= mask(_mm_or_si128(equals('\n'), equals('\r')));
    all.blank |= mask(blank);
    all.apostrophe |= mask(equals('\''));
    all.high |= mask(bytes);
  }
  return all;
}

inline uint64_t bits_below(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

// The length of the contraction at an apostrophe that a letter follows, or 0.
inline int contraction_length(const char* at, bool any_case) {
  const auto letter = [&](int i) { return static_cast<char>(any_case ? at[i] | 0x20 : at[i]); };
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
      return 0;
  }
}

}  // namespace detail

// The places within kWindow bytes where pieces begin, as bits, if one begins at the first byte. Only those
// that no byte after the window can change: what lies between two bits is a piece, and the highest bit is
// where to look next. 1: ask first_piece.
inline uint64_t piece_starts(const WordPattern& pattern, const char* at) {
  using Contractions = WordPattern::Contractions;
  if ((at[0] | at[1] | at[2]) & 0x80) return 1;
  const detail::ByteClasses is = detail::classes_of(at);
  const int ascii = std::countr_zero(is.high);
  const uint64_t known = detail::bits_below(ascii);
  const uint64_t letter = (is.upper | is.lower) & known, digit = is.digit & known, space = is.space & known,
                 line_break = is.line_break & known, blank = is.blank & known,
                 other = known & ~(letter | digit | space), inline_space = space & ~line_break;
  // White space that reaches the end may belong to what follows; a contraction takes up to three bytes.
  int limit = std::min(64 - std::countl_zero(known & ~space), ascii - 3);
  if (limit <= 1) return 1;

  const uint64_t letters_begin = letter & ~(letter << 1), digits_begin = digit & ~(digit << 1),
                 others_begin = other & ~(other << 1), after_blank = blank << 1;
  const uint64_t single = others_begin & ~(other >> 1) & ~after_blank;  // precedes a word in its piece
  uint64_t starts = 1 | (others_begin & ~after_blank);
  starts |= letters_begin & ~(pattern.any_prefix ? (inline_space | single) << 1 : after_blank);
  if (pattern.cased) starts |= is.upper & (is.lower << 1) & known;

  if (pattern.digits == 0) {
    starts |= digits_begin & ~after_blank;
  } else if (pattern.digits == 1) {
    starts |= digit;
  } else {                                                           // three
    const uint64_t follows_three = digit & digit << 1 & digit << 2;  // two, and the group's first
    for (uint64_t group = digits_begin; group != 0; group = group << 3 & follows_three) starts |= group;
  }

  // The last character of white space goes with what follows, or stands alone; what precedes it is a piece.
  const uint64_t spaces_begin = space & ~(space << 1), spaces_end = space & ~(space >> 1);
  if (!pattern.line_breaks) {
    starts |= spaces_begin | spaces_end;
  } else {
    const uint64_t taken = line_break & other << 1;  // by the punctuation before it, with those that follow
    const uint64_t after_breaks = line_break << 1 & ~line_break;
    starts |= (spaces_begin & ~taken) | (spaces_end & ~line_break) | (after_breaks & known);
    // A piece reaches the last line break of the white space: where another one follows after spaces,
    // first_piece finds it.
    const uint64_t lines = after_breaks & inline_space;
    if (const uint64_t later = (inline_space + lines) & ~inline_space & line_break) {
      const uint64_t before = lines & detail::bits_below(std::countr_zero(later));
      limit = std::min(limit, 63 - std::countl_zero(before));
    }
    if (pattern.slash_tail) {  // slashes after such line breaks are taken too
      uint64_t slashes = (line_break + taken) & ~line_break & other;
      for (; slashes != 0; slashes &= slashes - 1)
        if (const int place = std::countr_zero(slashes); at[place] == '/') limit = std::min(limit, place);
    }
  }

  if (pattern.contractions != Contractions::none) {
    const bool after_word = pattern.contractions == Contractions::any_case_after_word;
    uint64_t marks = is.apostrophe & single & letter >> 1;
    if (after_word) marks &= letter << 1;
    for (int end = -1; marks != 0; marks &= marks - 1) {
      const int mark = std::countr_zero(marks);
      if ((after_word && mark == end) || mark + 3 >= ascii) continue;
      const int length =
          detail::contraction_length(at + mark, pattern.contractions != Contractions::lower_case);
      if (length == 0) continue;
      end = mark + length;
      starts &= ~(detail::bits_below(end) & ~detail::bits_below(after_word ? mark : mark + 1));
      starts |= letter & 1ull << end;
    }
  }
  return starts & detail::bits_below(limit);
}

#else

inline uint64_t piece_starts(const WordPattern&, const char*) { return 1; }

#endif

}  // namespace quintet::tokenizer
