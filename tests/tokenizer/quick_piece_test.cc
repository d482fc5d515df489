// The vectorised scanner gives the pieces of first_piece, or asks for it.
#include "tokenizer/quick_piece.h"

#include <gtest/gtest.h>

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

TEST(QuickPiece, GivesThePiecesOfThePattern) {
  WordPattern tekken = o200k_pattern();
  tekken.contractions = WordPattern::Contractions::none;
  tekken.digits = 1;
  for (const WordPattern& pattern :
       {gpt2_pattern(), llama3_pattern(), qwen2_pattern(), cl100k_pattern(), o200k_pattern(), tekken}) {
    int64_t quick = 0, all = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const std::string text = random_text(seed, 4000);
      for (std::string_view rest = text; rest.size() >= kQuickBytes; ++all) {
        const size_t wanted = first_piece(pattern, rest), given = quick_piece(pattern, rest.data());
        ASSERT_TRUE(given == 0 || given == wanted)
            << given << " of " << wanted << ": '" << rest.substr(0, 32) << "' in text " << seed;
        quick += given > 0;
        rest.remove_prefix(wanted);
      }
    }
#if defined(__SSE2__)
    EXPECT_GT(quick, all / 4);
#endif
  }
}

// Every ASCII character alone before, between and after letters.
TEST(QuickPiece, KnowsEveryAsciiCharacter) {
  for (const WordPattern& pattern : {gpt2_pattern(), llama3_pattern(), o200k_pattern()})
    for (int a = 0; a < 128; ++a)
      for (int b = 0; b < 128; ++b)
        for (const char* after : {"x", "X", "1", " ", "\n", "."}) {
          const std::string text =
              std::string{static_cast<char>(a), static_cast<char>(b)} + after + std::string(40, 'k');
          const size_t given = quick_piece(pattern, text.data());
          ASSERT_TRUE(given == 0 || given == first_piece(pattern, text)) << a << " " << b << " " << after;
        }
}

}  // namespace
}  // namespace quintet::tokenizer
