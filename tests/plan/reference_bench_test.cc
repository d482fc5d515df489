#include "plan/reference_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/reference_rows.h"

namespace quintet::plan {
namespace {

TEST(ReferenceSummary, QuantilesLieBetweenOrderStatistics) {
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({0, 10}, 0.9), 9);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.9), 7);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(ReferenceSummary, ErrorsCountWithoutTheirSign) {
  const ErrorSummary s = summarise({-0.4, 0.1, 0.2});
  EXPECT_EQ(s.rows, 3u);
  EXPECT_DOUBLE_EQ(s.median, 0.2);
  EXPECT_DOUBLE_EQ(s.p90, 0.2 + 0.8 * 0.2);
  EXPECT_DOUBLE_EQ(s.bias, 0.1);
}

TEST(ReferenceBench, EveryRowIsScoredOrHasAReason) {
  std::vector<PublishedRun> rows = {reference_row("MOS-039"), reference_row("OFF-002"),
                                    reference_row("TT-002"), reference_row("TT-002")};
  rows[3].id = "TT-902";
  rows[3].tokens_per_s = 2 * *rows[3].tokens_per_s;
  const ReferenceReport report = run_reference(rows, {});
  ASSERT_EQ(report.rows.size(), 4u);
  EXPECT_EQ(report.all.rows, 3u);
  EXPECT_EQ(report.unmodelled, 1u);
  EXPECT_EQ(report.memory.rows, 2u);
  EXPECT_EQ(report.rows[2].predicted, report.rows[3].predicted);  // one question, asked once
  EXPECT_NEAR(report.rows[2].error(), 2 * report.rows[3].error() + 1, 1e-9);
  // What a step's time is made of adds up to it.
  const Time& time = report.rows[0].time;
  double sum = 0;
  for (const TimeShare& share : time.shares) sum += share.seconds;
  EXPECT_NEAR(sum, time.step, 1e-6 * time.step);

  const auto json = nlohmann::json::parse(reference_json(report));
  EXPECT_EQ(json["summary"]["rows"], 3);
  EXPECT_EQ(json["summary"]["unmodelled"], 1);
  EXPECT_DOUBLE_EQ(json["summary"]["median_error"], report.all.median);
  EXPECT_DOUBLE_EQ(json["summary"]["p90_error"], report.all.p90);
  EXPECT_DOUBLE_EQ(json["summary"]["memory_median_error"], report.memory.median);
  EXPECT_EQ(json["summary"]["stated"]["rows"], 3);
  EXPECT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["rows"][1]["reason"], "the row does not state the model's geometry");
  EXPECT_NE(reference_text(report).find("OFF-002    the row does not state"), std::string::npos);
}

// A claim above the chip's peak is an error of the row, said with its numbers, and is not scored.
TEST(ReferenceBench, ClaimsAbovePeakAreErrors) {
  std::vector<PublishedRun> rows = {reference_row("MOS-039"), reference_row("MEG21-004")};
  rows[0].tokens_per_s = 3 * *rows[0].tokens_per_s;  // 46 % of the peak, three times
  rows[1].tflops = 624;                              // an A100 with sparsity
  const ReferenceReport report = run_reference(rows, {});
  EXPECT_EQ(report.unmodelled, 2u);
  EXPECT_EQ(report.all.rows, 0u);
  for (const ReferenceRow& row : report.rows) {
    EXPECT_TRUE(row.mapping.reason.starts_with("the published speed: ")) << row.mapping.reason;
    EXPECT_NE(row.mapping.reason.find("TFLOP/s): impossible"), std::string::npos) << row.mapping.reason;
  }
  const auto json = nlohmann::json::parse(reference_json(report));
  EXPECT_EQ(json["rows"][0]["modelled"], false);
  EXPECT_EQ(json["rows"][0]["reason"], report.rows[0].mapping.reason);
}

TEST(ReferenceBench, OnlyWhatIsAskedFor) {
  const ReferenceReport one = run_reference(reference_rows(), {.id = "MOS-039"});
  ASSERT_EQ(one.rows.size(), 1u);
  EXPECT_EQ(one.rows[0].published.id, "MOS-039");
  EXPECT_EQ(run_reference(reference_rows(), {.collection = "OFF"}).rows.size(), 1u);
}

// Dense and with experts, A100 to GB300, one device kind each: the calibrated model stays within a band that
// a broken cost function or mapping would leave.
TEST(ReferenceBench, PredictionsStayInTheirBands) {
  for (const char* id : {"TT-002", "MEG21-004", "MOS-014", "MOS-039", "IEV-029", "BLM-095"}) {
    const ReferenceReport report = run_reference(reference_rows(), {.id = id});
    ASSERT_TRUE(report.rows[0].scored()) << id << " " << report.rows[0].mapping.reason;
    EXPECT_LT(std::abs(report.rows[0].error()), 0.25) << id << " " << report.rows[0].predicted;
  }
}

}  // namespace
}  // namespace quintet::plan
