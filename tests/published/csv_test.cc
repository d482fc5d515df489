#include "published/csv.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_codes.h"
#include "published/published_run.h"

namespace quintet::published {
namespace {

std::string complaint(std::string_view text) {
  try {
    parse_csv(text, "runs.csv");
  } catch (const base::UserError& e) {
    return base::without_code(e.what());
  }
  return "";
}

TEST(Csv, FieldsMayBeQuoted) {
  const Csv t = parse_csv("id,words\r\n1,\"a, b\"\n\n2,\"say \"\"x\"\"\"\n3,\"two\nlines\"\n4,", "t");
  ASSERT_EQ(t.rows.size(), 4u);
  EXPECT_EQ(t.at(0, "words"), "a, b");
  EXPECT_EQ(t.at(1, "words"), "say \"x\"");
  EXPECT_EQ(t.at(2, "words"), "two\nlines");
  EXPECT_EQ(t.at(3, "words"), "");
  EXPECT_TRUE(t.has("id"));
  EXPECT_FALSE(t.has("ID"));
}

TEST(Csv, ComplaintsNameTheLine) {
  EXPECT_EQ(complaint("a,b\n1,2\n\n1,2,3\n"), "runs.csv, line 4: 3 fields, but the header has 2");
  EXPECT_EQ(complaint("a,b\n1,\"2\n"), "runs.csv, line 2: unterminated quote");
  EXPECT_EQ(complaint("\n"), "runs.csv is empty; expected a header line and rows");
  const Csv t = parse_csv("a,b\n1,2\n", "t");
  EXPECT_THROW(t.at(0, "c"), base::UserError);
}

TEST(Csv, ATableOfRunsNeedsItsColumns) {
  EXPECT_THROW(read_published_runs("id,model\nTT-1,x\n", "t"), base::UserError);
}

}  // namespace
}  // namespace quintet::published
