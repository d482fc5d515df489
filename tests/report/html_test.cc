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
  PageParts parts{
      .ranking = {{"1.", "pp 4", "1 s", "9", "50 %", "23.0 GiB < 80"}, {"2.", "tp 8", "2 s", "5", "", ""}},
      .strategies = {{"DDP", "needs 99 GiB"}},
      .scaling = {{8, 100, 100}, {16, 180, 200}},
      .strong = {{"8", "32", "1 s", "100", "1x", "100 %", "50 %", "pp 4"}},
      .scaling_note = "from 16 on a device adds less than half",
      .cost = {{"GPU-hours", "1,000"}},
      .assumptions = {{"price", "2.99 USD"}},
      .provenance = {.version = "9.9", .command = "quintet plan 'a & b'"},
      .date = "2026-01-02 03:04:05"};
  const std::string html = to_html(report, parts);
  expect_balanced(html);
  test::expect_self_contained(html);
  EXPECT_EQ(count(html, "class=\"best\""), 1u) << "the winner is marked once";
  for (const char* part : {"a &lt;note&gt; &amp; more", "23.0 GiB &lt; 80", "from 16 on a device",
                           "GPU-hours", "needs 99 GiB", "2.99 USD", "quintet 9.9", "quintet plan 'a &amp; b'",
                           "2026-01-02 03:04:05 UTC", "perfect scaling", "limit "})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NE(html.find("<span>stage " + std::to_string(stage) + "</span>"), std::string::npos);
  // One forward and one backward of every micro-batch on every stage.
  const size_t at = html.find("{\"seconds\":"), end = html.find("</script>", at);
  const auto timeline = nlohmann::json::parse(html.substr(at, end - at));
  ASSERT_EQ(timeline["lanes"].size(), 4u);
  for (const auto& lane : timeline["lanes"])
    for (const int phase : {0, 1})
      EXPECT_EQ(std::count_if(lane.begin(), lane.end(), [&](const auto& span) { return span[2] == phase; }),
                report.recipe.batch.accumulation);
}

TEST(Html, OmitsAbsentParts) {
  const std::string html = to_html(planned(false));
  expect_balanced(html);
  for (const char* absent :
       {"Pipeline timeline", "By strategy", "fastest layouts", "<h2>Scaling", "<h2>Cost", "<h2>Provenance"})
    EXPECT_EQ(html.find(absent), std::string::npos) << absent;
}

TEST(Html, BarsNeverExceedTheirTrack) {
  const std::string html = to_html(planned(true));
  static const std::regex track("<div class=\"track\">(.*?)</div>"), width("width:([0-9.]+)%");
  size_t tracks = 0;
  for (std::sregex_iterator it(html.begin(), html.end(), track), end; it != end; ++it) {
    const std::string inside = (*it)[1];
    double sum = 0;
    for (std::sregex_iterator w(inside.begin(), inside.end(), width); w != end; ++w)
      sum += std::stod((*w)[1]);
    EXPECT_LE(sum, 100.01);
    EXPECT_GT(sum, 0);
    ++tracks;
  }
  EXPECT_EQ(tracks, count(html, "class=\"track\""));
  EXPECT_GT(tracks, 4u) << "memory of four stages, and time";
}

}  // namespace
}  // namespace quintet::report
