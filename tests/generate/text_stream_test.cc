#include "generate/text_stream.h"

#include <gtest/gtest.h>

namespace quintet::generate {
namespace {

std::vector<int32_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

// The pieces of a text that arrives byte by byte.
std::vector<std::string> pieces(std::string_view text, std::vector<std::string> stops) {
  static const tokenizer::ByteTokenizer tokenizer;
  const std::vector<int32_t> prompt = bytes("p");
  TextStream stream(tokenizer, prompt, std::move(stops));
  std::vector<std::string> list;
  for (const char c : text) list.push_back(stream.add(static_cast<unsigned char>(c)));
  list.push_back(stream.finish());
  return list;
}

TEST(TextStream, ShowsTextAsItComes) {
  EXPECT_EQ(pieces("abc", {}), (std::vector<std::string>{"a", "b", "c", ""}));
}

TEST(TextStream, StopStringsAreNeverShown) {
  EXPECT_EQ(pieces("a##b", {"##"}), (std::vector<std::string>{"a", "", "", "", ""}));
  EXPECT_EQ(pieces("a#b#", {"##"}), (std::vector<std::string>{"a", "", "#b", "", "#"}));
  EXPECT_EQ(pieces("xaab", {"aab", "zz"}), (std::vector<std::string>{"x", "", "", "", ""}));
  EXPECT_EQ(pieces("aaab", {"aab"}), (std::vector<std::string>{"", "", "a", "", ""}));
}

}  // namespace
}  // namespace quintet::generate
