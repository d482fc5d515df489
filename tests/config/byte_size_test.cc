#include "config/byte_size.h"

#include <gtest/gtest.h>

#include "config/parse.h"
#include "config/print.h"
#include "config/support.h"

namespace quintet::config {
namespace {

TEST(ByteSize, ReadsUnits) {
  EXPECT_EQ(parse_byte_size("6GiB"), int64_t{6} << 30);
  EXPECT_EQ(parse_byte_size("6 gib"), int64_t{6} << 30);
  EXPECT_EQ(parse_byte_size("1.5KiB"), 1536);
  EXPECT_EQ(parse_byte_size("800MB"), 800'000'000);
  EXPECT_EQ(parse_byte_size("2TB"), 2'000'000'000'000);
  EXPECT_EQ(parse_byte_size("17"), 17);
  EXPECT_EQ(parse_byte_size("17B"), 17);
  EXPECT_EQ(parse_byte_size("0.1KB"), 100);
}

TEST(ByteSize, RefusesTheRest) {
  for (const char* text : {"", "GiB", "6 apples", "-1GiB", "1e9", "6GiB ", "6  GiB", "17 ", "1.2.3MB", ".",
                           "9999999999TiB", "0.5B", "0.0001KiB"})
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
}

TEST(ByteSize, TextReadsBackToTheSame) {
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{1024}, int64_t{1} << 40, int64_t{3} << 29, int64_t{1000001}})
    EXPECT_EQ(parse_byte_size(byte_size_text(bytes)), bytes);
  EXPECT_EQ(byte_size_text(int64_t{6} << 30), "6GiB");
}

TEST(ByteSize, ABudgetIsANumberOrASize) {
  const Recipe text = parse(kGood, {"memory.recompute=fit", "memory.budget=6GiB"});
  EXPECT_EQ(text.memory.budget.value, int64_t{6} << 30);
  EXPECT_EQ(parse(kGood, {"memory.recompute=fit", "memory.budget=1000"}).memory.budget.value, 1000);
  EXPECT_EQ(parse(to_toml(text)), text);
}

TEST(ByteSize, AnInvalidBudgetIsRefused) {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& part) {
    const std::vector<Problem> problems = problems_with(overrides);
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].key, "memory.budget");
    EXPECT_NE(to_string(problems[0]).find(part), std::string::npos) << to_string(problems[0]);
  };
  refused({"memory.budget=6GiB"}, "6GiB has no effect with memory.recompute = \"none\"");
  refused({"memory.recompute=fit", "memory.budget='6 apples'"}, "a size like \"6GiB\"");
  refused({"memory.recompute=fit", "memory.budget=-1"}, "a number of bytes");
}

}  // namespace
}  // namespace quintet::config
