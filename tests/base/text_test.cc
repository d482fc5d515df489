#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/printable.h"

namespace quintet::base {
namespace {

TEST(Text, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1288490189), "1.2 GiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.0 MiB");  // never "1024.0 KiB"
  EXPECT_EQ(human_bytes(-2048), "-2.0 KiB");
  EXPECT_EQ(human_bytes(INT64_MAX), "8.0 EiB");
}

TEST(Text, Durations) {
  EXPECT_EQ(human_duration(0), "0 ns");
  EXPECT_EQ(human_duration(999), "999 ns");
  EXPECT_EQ(human_duration(12'340), "12.3 us");
  EXPECT_EQ(human_duration(999'999), "1.0 ms");
  EXPECT_EQ(human_duration(3'200'000'000), "3.2 s");
  EXPECT_EQ(human_duration(59'999'999'999), "1m 00s");
  EXPECT_EQ(human_duration(125'000'000'000), "2m 05s");
  EXPECT_EQ(human_duration(3'600'000'000'000), "1h 00m");
  EXPECT_EQ(human_duration(3 * 86'400'000'000'000 + 4 * 3'600'000'000'000), "3d 04h");
  EXPECT_EQ(human_duration(-1'500'000), "-1.5 ms");
  EXPECT_EQ(human_duration(INT64_MIN), human_duration(-INT64_MAX));
}

TEST(Text, Thousands) {
  EXPECT_EQ(thousands(0), "0");
  EXPECT_EQ(thousands(999), "999");
  EXPECT_EQ(thousands(1000), "1,000");
  EXPECT_EQ(thousands(-1234567), "-1,234,567");
  EXPECT_EQ(thousands(-123), "-123");
  EXPECT_EQ(thousands(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Text, Counts) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1234), "1.23k");
  EXPECT_EQ(human_count(12'340), "12.3k");
  EXPECT_EQ(human_count(999'600), "1.00M");
  EXPECT_EQ(human_count(1.5e9), "1.50B");
  EXPECT_EQ(human_count(0.5), "0.50");
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("mirco", "micro"), 1);  // a swap of neighbours is one edit
  EXPECT_EQ(edit_distance("same", "same"), 0);
  EXPECT_EQ(edit_distance(std::string(100'000'000, 'a'), "aaa"), 99'999'997) << "known without looking at it";
}

TEST(Text, NearestWord) {
  const std::vector<std::string> words = {"micro", "global", "accumulation"};
  EXPECT_EQ(nearest_word("mirco", words), "micro");
  EXPECT_EQ(nearest_word("acumulations", words), "accumulation");
  EXPECT_EQ(nearest_word("GLOBAL", words), "global");
  EXPECT_EQ(nearest_word("Mirco", words), "micro");
  EXPECT_EQ(nearest_word("h200", std::vector<std::string>{"H100", "H200"}), "H200");
  EXPECT_EQ(nearest_word("zebra", words), std::nullopt);
  EXPECT_EQ(nearest_word("", words), std::nullopt);
}

TEST(Text, PrintableHasNoControlCharacters) {
  EXPECT_EQ(printable("plain\ttext\n\u00e9\u4e16\U0001F600"), "plain\ttext\n\u00e9\u4e16\U0001F600");
  EXPECT_EQ(printable("\x1b[31mred\x07\x7f\r"), "\\x1b[31mred\\x07\\x7f\\x0d");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "a C1 control as UTF-8";
  EXPECT_EQ(printable("a\u202egnp"), "a\\xe2\\x80\\xaegnp") << "shown as a file that ends in png";
  EXPECT_EQ(printable("\u2066\u2069"), "\\xe2\\x81\\xa6\\xe2\\x81\\xa9");
  EXPECT_EQ(printable("\u2029\u202f\u2065\u206a"), "\u2029\u202f\u2065\u206a") << "their neighbours";
  EXPECT_EQ(printable("\x9b\xff\xc0\x80"), "\\x9b\\xff\\xc0\\x80");
  // Overlong forms of ESC, U+009B and others, surrogates, and what follows U+10FFFF are no characters.
  for (const std::string bytes : {"\xe0\x80\x9b[31m", "\xe0\x82\x9b", "\xe0\x9f\xbf", "\xf0\x80\x80\x9b",
                                  "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    for (const unsigned char c : printable(bytes)) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << printable(bytes);
  for (const std::string character :
       {"\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(printable(character), character);
  PrintableStream stream;
  std::string joined = stream.add("a\xc3");
  joined += stream.add("\xa9");
  joined += stream.add("\xc2");
  EXPECT_EQ(joined, "a\u00e9");
  EXPECT_EQ(stream.finish(), "\\xc2");
}

TEST(Clock, NeverRunsBackwards) {
  int64_t last = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Checksum, PiecesEqualTheWhole) {
  std::vector<std::byte> bytes(10'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  const std::span<const std::byte> all(bytes);
  Checksum sum;
  sum.add(all.first(1));
  sum.add(all.subspan(1, 4999));
  sum.add(all.subspan(5000));
  EXPECT_EQ(sum.value(), checksum_of(all));
  EXPECT_EQ(checksum_of({}), 0x2d06800538d394c2ull);  // the published XXH3-64 of empty input
  bytes[77] ^= std::byte{1};
  EXPECT_NE(sum.value(), checksum_of(all));
}

}  // namespace
}  // namespace quintet::base
