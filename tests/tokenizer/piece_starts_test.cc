// The pieces that masks of 64 bytes give are those of first_piece.
#include "tokenizer/piece_starts.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "base/philox.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// Text of runs of one class, so that every kind of run meets every other, with few characters beyond ASCII.
std::string random_text(uint64_t seed, size_t size) {
  static const std::string_view kClasses[] = {"abcxyz",
                                              "ABCXYZ",
                                              "0123456789",
                                              " ",
                                              " \t\v\f",
                                              "\n\r",
                                              "'sStTrReEvVlLmMdD",
                                              "./!_-#'\"",
                                              "/",
                                              "\x1c\x1f\x7f\x01",
                                              "e\u0301\u00e9\u017f",
                                              "\u00a0\u2028\u0661\u4e2d"};
  std::string text;
  for (uint64_t i = 0; text.size() < size; ++i) {
    const auto words = base::philox(seed, i);
    const std::string_view from = kClasses[words[0] % std::size(kClasses)];
    for (uint32_t n = 0; n < 1 + words[1] % (words[2] % 8 == 0 ? 24 : 4); ++n) {
      size_t at = base::philox(seed ^ 77, i, n)[0] % from.size();
      while (at > 0 && (static_cast<uint8_t>(from[at]) & 0xC0) == 0x80) --at;
      text += from.substr(at, static_cast<size_t>(utf8_length(from[at])));
    }
  }
  return text;
}

// Compares the pieces of one window with the pattern's; returns how many there are.
int compare_window(const WordPattern& pattern, std::string_view text) {
  int pieces = 0;
  size_t begin = 0;
  for (uint64_t starts = piece_starts(pattern, text.data()) & ~1ull; starts != 0; starts &= starts - 1) {
    const auto end = static_cast<size_t>(std::countr_zero(starts));
    const size_t wanted = first_piece(pattern, text.substr(begin));
    EXPECT_EQ(end - begin, wanted) << "byte " << begin << " of '" << text.substr(0, kWindow + 8) << "'";
    if (end - begin != wanted) break;
    begin = end;
    ++pieces;
  }
  return pieces;
}

// Every window that begins at a piece, in text of every pattern.
TEST(PieceStarts, AreThoseOfThePattern) {
  WordPattern tekken = o200k_pattern();
  tekken.contractions = WordPattern::Contractions::none;
  tekken.digits = 1;
  for (const WordPattern& pattern :
       {gpt2_pattern(), llama3_pattern(), qwen2_pattern(), cl100k_pattern(), o200k_pattern(), tekken}) {
    int64_t pieces = 0, windows = 0;
    for (uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
      const std::string text = random_text(seed, 4000);
      for (std::string_view rest = text; rest.size() >= kWindow && !HasFailure(); ++windows) {
        pieces += compare_window(pattern, rest);
        rest.remove_prefix(first_piece(pattern, rest));
      }
    }
#if defined(__SSE2__)
    EXPECT_GT(pieces, windows);
#endif
  }
}

// Every ASCII character alone before, between and after letters, and at every distance from the window's end.
TEST(PieceStarts, KnowEveryAsciiCharacter) {
  for (const WordPattern& pattern : {gpt2_pattern(), llama3_pattern(), o200k_pattern()})
    for (int a = 0; a < 128; ++a)
      for (int b = 0; b < 128 && !HasFailure(); ++b)
        for (const char* after : {"x", "X", "1", " ", "\n", ".", "'", "\u00e9"})
          compare_window(pattern, std::string{static_cast<char>(a), static_cast<char>(b)} + after +
                                      std::string(70, 'k'));
  for (const WordPattern& pattern : {gpt2_pattern(), llama3_pattern(), o200k_pattern()})
    for (size_t before = 1; before < kWindow; ++before)
      for (const char* part :
           {"it's he'LL we've 'sx 'lLx", "a'ss's'sb 1234567 x", "x)\n/y //\n z", " \n \n  a"})
        for (const char* filler : {"a ", "aB", "(", "9", " "}) {
          std::string text;
          while (text.size() < before) text += filler;
          compare_window(pattern, text.substr(0, before) + part + std::string(80, '+'));
        }
}

}  // namespace
}  // namespace quintet::tokenizer
