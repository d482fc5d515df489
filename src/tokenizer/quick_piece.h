// The first piece of a text by vectors of 16 bytes, for what most text is: ASCII characters in pieces of less
// than 16 bytes. Gives what first_piece gives, or nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tokenizer/word_patterns.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace quintet::tokenizer {

// Bytes that must be readable at the place that is looked at.
inline constexpr size_t kQuickBytes = 32;

#if defined(__SSE2__)

namespace detail {

// A bit per byte of a vector.
struct ByteClasses {
  uint32_t upper, lower, digit, space, high;  // high: not ASCII
  uint32_t letter() const { return upper | lower; }
  uint32_t other() const { return ~(upper | lower | digit | space | high); }
};

inline ByteClasses classes_of(const char* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  // Whether a byte is in [first, first + count): signed comparison of the difference, shifted to the least
  // value.
  const auto in_range = [&](char first, int count) {
    const __m128i shifted = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(-128 - first)));
    return static_cast<uint32_t>(
        _mm_movemask_epi8(_mm_cmplt_epi8(shifted, _mm_set1_epi8(static_cast<char>(-128 + count)))));
  };
  const auto blank = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(' '))));
  return {.upper = in_range('A', 26),
          .lower = in_range('a', 26),
          .digit = in_range('0', 10),
          .space = in_range('\t', 5) | blank,
          .high = static_cast<uint32_t>(_mm_movemask_epi8(bytes))};
}

// The first byte at or after `from` that is not in the mask; 16 if all are.
inline uint32_t run_end(uint32_t mask, uint32_t from) {
  return from + static_cast<uint32_t>(__builtin_ctz(~(mask >> from) | 0x10000u >> from));
}

}  // namespace detail

// The length of the first piece of a text with at least kQuickBytes bytes; 0: ask first_piece.
inline size_t quick_piece(const WordPattern& pattern, const char* at) {
  using Contractions = WordPattern::Contractions;
  const detail::ByteClasses is = detail::classes_of(at);
  const char c = *at;
  if (is.high & 1) return 0;
  // A run that ends within the vector, before an ASCII character, is known.
  const auto known = [&](uint32_t end) {
    return end < 16 && !(is.high >> end & 1) ? size_t{end} : size_t{0};
  };
  const bool line_break = c == '\n' || c == '\r';
  if (c == '\'' &&
      (pattern.contractions == Contractions::lower_case || pattern.contractions == Contractions::any_case)) {
    const char next = static_cast<char>(at[1] | 0x20);
    if ((is.high & 2) || next == 's' || next == 't' || next == 'm' || next == 'd' || next == 'r' ||
        next == 'v' || next == 'l')
      return 0;
  }
  // A word, with the one character that may precede it.
  const uint32_t letters = is.letter();
  const bool may_prefix = pattern.any_prefix ? !((letters | is.digit) & 1) && !line_break : c == ' ';
  const uint32_t from = may_prefix ? 1 : 0;
  if (letters >> from & 1) {
    if (!pattern.cased) return known(detail::run_end(letters, from));
    const uint32_t end = detail::run_end(is.lower, detail::run_end(is.upper, from));
    if (pattern.contractions == Contractions::any_case_after_word && end < 16 && at[end] == '\'') return 0;
    return known(end);
  }
  if (is.high >> from & 1) return 0;  // may be a letter
  const uint32_t space = c == ' ' ? 1 : 0;
  if (pattern.digits > 0) {
    if (is.digit & 1) {
      const uint32_t end = detail::run_end(is.digit, 0), most = static_cast<uint32_t>(pattern.digits);
      return end >= most ? most : known(end);
    }
  } else if (is.digit >> space & 1) {
    return known(detail::run_end(is.digit, space));
  }
  const uint32_t others = is.other();
  if (others >> space & 1) {
    size_t end = known(detail::run_end(others, space));
    if (end == 0 || !pattern.line_breaks) return end;
    while (end < kQuickBytes &&
           (at[end] == '\n' || at[end] == '\r' || (pattern.slash_tail && at[end] == '/')))
      ++end;
    return end < kQuickBytes ? end : 0;
  }
  const size_t end = known(detail::run_end(is.space, 0));
  if (end == 0) return 0;
  if (pattern.line_breaks)
    for (size_t i = end; i > 0; --i)
      if (at[i - 1] == '\n' || at[i - 1] == '\r') return i;
  return end > 1 ? end - 1 : end;
}

#else

inline size_t quick_piece(const WordPattern&, const char*) { return 0; }

#endif

}  // namespace quintet::tokenizer
