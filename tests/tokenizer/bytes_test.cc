#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tokenizer {
namespace {

TEST(ByteTokenizer, EveryByteRoundTrips) {
  std::string text;
  for (int b = 0; b < 256; ++b) text.push_back(static_cast<char>(b));
  const ByteTokenizer tokenizer;
  const auto ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(ids[static_cast<size_t>(b)], b);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(ByteTokenizer, AppendsAndRefusesNonBytes) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  std::vector<int32_t> ids = {1};
  tokenizer->encode("ab", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 97, 98}));
  for (const int32_t bad : {-1, 256})
    EXPECT_CONTAINS(test::user_error([&] {
                      tokenizer->decode(std::vector<int32_t>{65, bad});
                    }),
                    "token " + std::to_string(bad) + " at position 1");
}

TEST(Tokenizer, UnknownNameListsWhatThereIs) {
  const auto message = test::user_error([] { load_tokenizer("byte"); });
  EXPECT_CONTAINS(message, "'byte'");
  EXPECT_CONTAINS(message, "\"bytes\"");
}

}  // namespace
}  // namespace quintet::tokenizer
