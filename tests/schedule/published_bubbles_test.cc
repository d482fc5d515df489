#include "schedule/published_bubbles.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "support/folders.h"

namespace quintet::schedule {
namespace {

TEST(Published, RatesComeWithinTwoHundredths) {
  const std::vector<PublishedBubble> rows =
      compare_published(base::read_file(test::source_dir() + "/tests/schedule/published_bubbles.csv"));
  ASSERT_EQ(rows.size(), 75u);
  for (const PublishedBubble& row : rows) {
    ASSERT_TRUE(row.was_simulated) << report({row});
    EXPECT_LE(std::abs(row.difference()), 0.02) << report({row});
    // These have a fixed order: they agree to the last published digit.
    if (row.schedule == "1F1B" || row.schedule == "ZB-H1" || row.schedule == "ZB-H2") {
      EXPECT_NEAR(row.simulated, row.published, 0.000051) << report({row});
    }
  }
}

TEST(Published, RowsWithoutCostsAreReportedAsSuch) {
  const auto rows = compare_published(
      "source,model,stages,microbatches,schedule,bubble_rate,f,b,w,hop\n"
      "a,b,2,4,1F1B,0.2,1,1,1,0\n"
      "a,b,2,4,1F1B,0.2,1,1,1,\n"
      "a,b,2,4,Chimera,0.2,1,1,1,0\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[0].was_simulated);
  EXPECT_DOUBLE_EQ(rows[0].simulated, 0.2);
  EXPECT_FALSE(rows[1].was_simulated);
  EXPECT_EQ(rows[1].note, "not simulated: no cost hop");
  EXPECT_EQ(rows[2].note, "not simulated: unknown schedule");
  EXPECT_NE(report(rows).find("not simulated: no cost hop"), std::string::npos);
  EXPECT_THROW(compare_published("stages,microbatches\n1,2,3\n"), base::UserError);
  EXPECT_THROW(compare_published("stages,microbatches\nx,2\n"), base::UserError);
}

}  // namespace
}  // namespace quintet::schedule
