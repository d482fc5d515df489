// The cost of a run of a number of tokens: its text, and that it is true.
#include "report/economy_report.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/small_models.h"

namespace quintet::report {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_llama;

// Cost of tokens at a plan's rate; the checkpoint interval follows from the failure rate.
TEST(Economy, OfTokens) {
  plan::Assumptions a = small_cluster();
  a.cluster.price_per_hour = 2;
  const plan::Report r = plan::make_plan(small_llama({"parallel.dp_replicate=8"}), a);
  const EconomyReport e = economy(r, 1e9);
  EXPECT_NEAR(e.ideal.seconds, 1e9 / r.time.tokens_per_s, 1e-6);
  EXPECT_NEAR(e.ideal.device_hours, e.ideal.seconds * 8 / 3600, 1e-9);
  EXPECT_NEAR(e.ideal.usd, 2 * e.ideal.device_hours, 1e-9);
  EXPECT_GT(e.with_losses.seconds, e.ideal.seconds);
  EXPECT_NEAR(e.with_losses.seconds * e.goodput.share, e.ideal.seconds, 1e-6 * e.ideal.seconds);
  EXPECT_NE(to_text(e, a.cluster).find("the best checkpoint interval is "), std::string::npos);
  plan::Report wrong = r;
  wrong.time.step /= 1e6;
  EXPECT_THROW(economy(wrong, 1e9), base::UserError);
}

// Assumptions about failures are reported, and can be set.
TEST(Economy, FailuresAsGiven) {
  plan::Assumptions a = small_cluster();
  const plan::Report r = plan::make_plan(small_llama({"parallel.dp_replicate=8"}), a);
  const std::string usual = to_text(economy(r, 1e12), a.cluster);
  EXPECT_NE(usual.find("0.47 failures per 1,000 devices per day (as in the Llama 3 405B run; --failures)"),
            std::string::npos)
      << usual;
  EXPECT_NE(usual.find("the catalogue has no price for test: pass --price"), std::string::npos) << usual;
  const EconomyReport frail = economy(r, 1e12, {.failures_per_device_hour = 1e-3, .checkpoint_seconds = 5});
  EXPECT_LT(frail.goodput.interval_seconds, economy(r, 1e12).goodput.interval_seconds);
  EXPECT_LT(frail.goodput.share, economy(r, 1e12).goodput.share);
  const std::string given = to_text(frail, a.cluster);
  EXPECT_NE(given.find("24.00 failures per 1,000 devices per day (given), 5.0 s per checkpoint (given)"),
            std::string::npos)
      << given;
}

TEST(Economy, Tokens) {
  EXPECT_DOUBLE_EQ(parse_tokens("15T"), 15e12);
  EXPECT_DOUBLE_EQ(parse_tokens("300B"), 300e9);
  EXPECT_DOUBLE_EQ(parse_tokens("1.5e12"), 1.5e12);
  EXPECT_THROW(parse_tokens("many"), base::UserError);
  EXPECT_THROW(parse_tokens("-1B"), base::UserError);
}

}  // namespace
}  // namespace quintet::report
