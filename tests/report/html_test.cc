#include "report/html.h"

#include <gtest/gtest.h>

#include <regex>

#include "config/presets.h"
#include "config/resolve.h"
#include "plan/recipe_from_model.h"
#include "report/html_checks.h"

namespace quintet::report {
namespace {

using test::count;
using test::expect_balanced;

plan::Report planned(bool timeline) {
  plan::Assumptions assumptions;
  assumptions.cluster = hardware::parse_cluster("1x8 h100");
  assumptions.timeline = timeline;
  plan::RecipeRequest question;
  question.model = "llama3.2-1b";
  question.seq_len = 2048;
  question.global_batch = 32;
  question.micro_batch = 1;
  question.sets = {"parallel.pp=4", "parallel.tp=2"};
  plan::Report report =
      plan::make_plan(plan::recipe_from_model(question, assumptions.cluster).recipe, assumptions);
  report.notes = {"a <note> & more"};
  return report;
}

TEST(Html, IsOneSelfContainedWellFormedPage) {
  const plan::Report report = planned(true);
  PageParts parts{.verdict = {"DDP: needs 23.0 GiB < 80"},
                  .scaling = {{8, 100, 100, ""}, {16, 180, 200, "pp 4"}},
                  .scaling_note = "from 16 on a device adds less than half",
                  .cost = {{"GPU-hours", "1,000"}}};
  const std::string html = to_html(report, parts);
  expect_balanced(html);
  EXPECT_EQ(count(html, "http"), 0u);
  EXPECT_EQ(count(html, "<script"), 0u);
  EXPECT_EQ(count(html, "name=\"viewport\""), 1u);
  EXPECT_NE(html.find("a &lt;note&gt; &amp; more"), std::string::npos);
  EXPECT_NE(html.find("needs 23.0 GiB &lt; 80"), std::string::npos);
  EXPECT_NE(html.find("from 16 on a device"), std::string::npos);
  EXPECT_NE(html.find("GPU-hours"), std::string::npos);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NE(html.find("<span>stage " + std::to_string(stage) + "</span>"), std::string::npos);
  // One forward and one backward of every micro-batch on every stage.
  const size_t micro = static_cast<size_t>(report.recipe.batch.accumulation);
  EXPECT_EQ(count(html, "<title>forward of micro-batch"), 4 * micro);
  EXPECT_EQ(count(html, "<title>backward of micro-batch"), 4 * micro);
}

TEST(Html, OmitsAbsentParts) {
  const std::string html = to_html(planned(false));
  expect_balanced(html);
  for (const char* absent : {"Pipeline timeline", "Verdict", "Throughput by", "<h2>Cost"})
    EXPECT_EQ(html.find(absent), std::string::npos) << absent;
}

TEST(Html, BarsNeverExceedTheirTrack) {
  const std::string html = to_html(planned(true));
  static const std::regex track("<div class=\"track\">(.*?)</div>"), width("width:([0-9.]+)%");
  for (std::sregex_iterator it(html.begin(), html.end(), track), end; it != end; ++it) {
    const std::string inside = (*it)[1];
    double sum = 0;
    for (std::sregex_iterator w(inside.begin(), inside.end(), width); w != end; ++w)
      sum += std::stod((*w)[1]);
    EXPECT_LE(sum, 100.01);
    EXPECT_GT(sum, 0);
  }
}

}  // namespace
}  // namespace quintet::report
