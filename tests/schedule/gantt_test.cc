#include "schedule/gantt.h"

#include <gtest/gtest.h>

#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Gantt, Text) {
  const Schedule s = one_f_one_b(2, 2);
  const Timeline line = simulate(s, Costs::uniform(s, 1, 1, 1));
  EXPECT_EQ(text_gantt(s, line),
            "0 |F0-F1-......B0----...B1----|\n"
            "1 |...F0-B0----F1-B1----......|\n"
            "1f1b: 2 stages, 1 chunk, 2 micro-batches; bubble 33.33%, by rank 33.33%\n");
}

TEST(Gantt, APanelHasTheWidthThatIsGiven) {
  const Schedule s = one_f_one_b(2, 2);
  const Timeline line = simulate(s, Costs::uniform(s, 1, 1, 1));
  EXPECT_EQ(text_gantt(s, line, 0, 20),
            "0 |F0-F1-......B0--|\n"
            "1 |...F0-B0----F1-B|\n"
            "\n"
            "0 |--...B1----|\n"
            "1 |1----......|\n"
            "1f1b: 2 stages, 1 chunk, 2 micro-batches; bubble 33.33%, by rank 33.33%\n");
  EXPECT_EQ(text_gantt(s, line, 0, 31), text_gantt(s, line));
  EXPECT_EQ(text_gantt(s, line, 0, 3), text_gantt(s, line)) << "too narrow for any column";
}

TEST(Gantt, TextOfTwoChunksAndSplitBackward) {
  const Schedule s = zb_v(1, 1);
  EXPECT_EQ(text_gantt(s, simulate(s, Costs::uniform(s, 1, 1, 1)), 2),
            "0 |F0f0b0w0B0W0|\nzb-v: 1 stages, 2 chunks, 1 micro-batches; bubble 0.00%, by rank 0.00%\n");
}

TEST(Gantt, SvgIsSelfContainedAndHasEveryAction) {
  Schedule s = dualpipev(2, 4);
  s.name = "a<b&c";
  const std::string svg = svg_gantt(s, simulate(s, Costs::uniform(s, 1, 1, 1)));
  EXPECT_EQ(svg.find("<svg xmlns="), 0u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a&lt;b&amp;c"), std::string::npos);
  EXPECT_EQ(count(svg, "<title>"), s.ranks[0].size() + s.ranks[1].size());
  for (const std::vector<Action>& actions : s.ranks)
    for (const Action& action : actions)
      EXPECT_NE(svg.find("<title>" + to_text(action) + ":"), std::string::npos);
  EXPECT_EQ(svg.find("href"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

}  // namespace
}  // namespace quintet::schedule
