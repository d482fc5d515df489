#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

TEST(Simulate, UnevenStagesAndHopsByHand) {
  const Schedule s = gpipe(2, 2);
  Costs costs = Costs::uniform(s, 1, 2, 3, 0.5);
  costs.f = {1, 4};
  const Timeline line = simulate(s, costs);
  // Rank 0: F 0-1, 1-2. Rank 1: F 1.5-5.5, 5.5-9.5; BW 9.5-14.5, 14.5-19.5. Rank 0: BW 15-20, 20-25.
  EXPECT_DOUBLE_EQ(line.ranks[1][0].start, 1.5);
  EXPECT_DOUBLE_EQ(line.ranks[1][3].end, 19.5);
  EXPECT_DOUBLE_EQ(line.ranks[0][2].start, 15);
  EXPECT_DOUBLE_EQ(line.makespan, 25);
  EXPECT_DOUBLE_EQ(line.longest_span, 25);
  EXPECT_DOUBLE_EQ(line.busy[0], 12);
  EXPECT_DOUBLE_EQ(line.busy[1], 18);
  EXPECT_DOUBLE_EQ(line.bubble(), 10);
  EXPECT_DOUBLE_EQ(line.bubble_rate(), 0.4);
}

TEST(Simulate, NoHopBetweenChunksOfOneRank) {
  const Schedule s = zb_v(1, 3);
  EXPECT_DOUBLE_EQ(simulate(s, Costs::uniform(s, 1, 1, 1, 100)).makespan, 18);
}

// Both actions of a mixed pair take the time of the pair.
TEST(Simulate, MixedPairByHand) {
  Schedule s = gpipe(1, 2);
  s.ranks[0] = {{Kind::F, 0, 0}, {Kind::F, 0, 1}, {Kind::BW, 0, 0}, {Kind::BW, 0, 1}};
  s.ranks[0][1].with_next = true;
  Costs costs = Costs::uniform(s, 1, 2, 3);
  costs.mix_saving = 0.5;
  const Timeline line = simulate(s, costs);
  // F 0-1, the pair 1-6.5, BW 6.5-11.5.
  for (const size_t of_pair : {1, 2}) {
    EXPECT_DOUBLE_EQ(line.ranks[0][of_pair].start, 1);
    EXPECT_DOUBLE_EQ(line.ranks[0][of_pair].end, 6.5);
  }
  EXPECT_DOUBLE_EQ(line.makespan, 11.5);
  EXPECT_DOUBLE_EQ(line.busy[0], 11.5);
}

TEST(Simulate, InFlightUntilBIsNoMoreThanUntilW) {
  const Schedule s = zb_h1(4, 8);
  // Activations that no W needs are freed at B: then ZB-H1 holds as much as 1F1B, p - r.
  EXPECT_EQ(in_flight(s).until_b, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight(s).until_w, (std::vector<int>{4, 4, 4, 4}));
}

TEST(Simulate, CostsMustFitTheSchedule) {
  const Schedule s = zb_v(2, 4);
  EXPECT_THROW(simulate(s, Costs::uniform(gpipe(2, 4), 1, 1, 1)), base::UserError);
}

}  // namespace
}  // namespace quintet::schedule
