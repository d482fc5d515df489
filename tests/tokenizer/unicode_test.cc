#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace quintet::tokenizer {
namespace {

std::string replaced(std::string_view text) {
  std::string storage;
  return std::string(valid_utf8(text, storage));
}

TEST(Unicode, EveryCodePointRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    const char* at = text.data();
    ASSERT_EQ(next_code(at), code);
    ASSERT_EQ(at, text.data() + text.size());
    ASSERT_EQ(static_cast<size_t>(utf8_length(text[0])), text.size());
    ASSERT_EQ(replaced(text), text);
  }
}

// The numbers of the standard's UnicodeData.txt, version 16.0.
TEST(Unicode, ClassesHaveTheSizesOfUnicode16) {
  int letters = 0, numbers = 0, marks = 0, punctuation = 0, symbols = 0, spaces = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    const uint8_t bits = char_class(code);
    letters += (bits & kLetter) != 0;
    numbers += (bits & kNumber) != 0;
    marks += (bits & kMark) != 0;
    punctuation += (bits & kPunct) != 0;
    symbols += (bits & kSymbol) != 0;
    spaces += (bits & kSpace) != 0;
    const Category kind = category(code);
    ASSERT_EQ((bits & kLetter) != 0, kind <= Category::Lo);
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(marks, 2501);
  EXPECT_EQ(punctuation, 855);
  EXPECT_EQ(symbols, 8514);
  EXPECT_EQ(spaces, 25);
}

// The examples of the standard, section 3.9, "U+FFFD substitution of maximal subparts".
TEST(Unicode, InvalidPartsBecomeOneReplacementEach) {
  EXPECT_EQ(replaced("a\xF1\x80\x80\xE1\x80\xC2"
                     "b\x80"
                     "c\x80\xBF"
                     "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced("\xED\xA0\x80\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace quintet::tokenizer
