#include "schedule/synthesize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/draft.h"
#include "schedule/generators.h"
#include "schedule/greedy.h"

namespace quintet::schedule {
namespace {

// Times of a whole stage; a chunk takes its share.
struct Stage {
  double f = 1, b = 1, w = 1, hop = 0;
};

Problem problem(int p, int m, const Stage& stage, double memory, double freed_at_b = 0) {
  return {.ranks = p,
          .micro_batches = m,
          .costs =
              [stage](const Schedule& s) {
                const double v = s.chunks;
                return Costs::uniform(s, stage.f / v, stage.b / v, stage.w / v, stage.hop);
              },
          .memory = memory,
          .freed_at_b = freed_at_b};
}

double peak(const Schedule& s) {
  int most = 0;
  for (const int held : in_flight(s).until_w) most = std::max(most, held);
  return static_cast<double>(most) / s.chunks;
}

constexpr Stage kStages[] = {
    {1, 1, 1, 0}, {1, 1, 1, 0.1}, {1, 1.2, 0.7, 0.05}, {18.5, 18.1, 9.3, 0.6}, {1, 1, 2, 0}};

TEST(Synthesize, NeverSlowerThanTheBestNamedScheduleNorThanTheBoundAllows) {
  for (const int p : {1, 2, 4, 6})
    for (const int m : {p, 2 * p + 1})
      for (const Stage& stage : kStages)
        for (const double memory : {p * 0.75, p * 1.0, p * 2.0, 1e9}) {
          if (memory < 2) continue;
          SCOPED_TRACE(testing::Message() << "p " << p << " m " << m << " memory " << memory << " f "
                                          << stage.f << " w " << stage.w << " hop " << stage.hop);
          const Synthesis s = synthesize(problem(p, m, stage, memory));
          EXPECT_NO_THROW(check(s.schedule));
          EXPECT_LE(peak(s.schedule), memory + 1e-9);
          EXPECT_EQ(s.schedule.max_in_flight, in_flight(s.schedule).until_w);
          EXPECT_LE(s.bound, s.timeline.makespan * (1 + 1e-9));
          EXPECT_GT(s.bound, 0);
          EXPECT_EQ(s.named.size(), schedule_names().size());
          for (const Synthesis::NamedResult& rival : s.named)
            EXPECT_LE(s.timeline.makespan, rival.makespan * (1 + 1e-9)) << rival.name;
        }
}

TEST(Synthesize, BeatsEveryNamedScheduleWhereCostsAreUneven) {
  const Synthesis s = synthesize(problem(8, 24, {1, 1.1, 0.6, 0.1}, 6));
  for (const Synthesis::NamedResult& rival : s.named)
    EXPECT_LT(s.timeline.makespan, rival.makespan) << rival.name;
  EXPECT_LT(s.gap(), 0.15) << s.origin;
}

TEST(Synthesize, OneRankHasNoGap) {
  const Synthesis s = synthesize(problem(1, 5, {1, 2, 3, 1}, 1e9));
  EXPECT_DOUBLE_EQ(s.timeline.makespan, 30);
  EXPECT_DOUBLE_EQ(s.bound, 30);
}

TEST(Synthesize, TooLittleMemoryNamesTheLeast) {
  try {
    synthesize(problem(4, 8, {}, 0.25));
    FAIL() << "a schedule was found for a quarter of an activation";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("fits 0.25"), std::string::npos) << e.what();
  }
}

// The shortest makespan of all orders of all ranks, by brute force.
class Exhaustive {
 public:
  Exhaustive(const Schedule& shape, const Costs& costs, double most)
      : s_(shape), costs_(costs), most_(most), done_(static_cast<size_t>(s_.stages)) {
    s_.splits_backward = true;
    s_.ranks.assign(static_cast<size_t>(s_.stages), {});
  }
  double best() {
    extend(0);
    return best_;
  }

 private:
  // Micro-batches are equal, so each kind may be taken in their order.
  void extend(int rank) {
    if (rank == s_.stages) {
      try {
        check(s_);
      } catch (const base::UserError&) {
        return;
      }
      best_ = std::min(best_, simulate(s_, costs_).makespan);
      return;
    }
    auto& [f, b, w] = done_[static_cast<size_t>(rank)].counts;
    std::vector<Action>& actions = s_.ranks[static_cast<size_t>(rank)];
    if (w == s_.micro_batches) return extend(rank + 1);
    const auto take = [&](int& count, Kind kind) {
      actions.push_back({kind, 0, count});
      ++count;
      extend(rank);
      --count;
      actions.pop_back();
    };
    if (f < s_.micro_batches && f - w < most_) take(f, Kind::F);
    if (b < f) take(b, Kind::B);
    if (w < b) take(w, Kind::W);
  }
  struct Done {
    int counts[3] = {0, 0, 0};
  };
  Schedule s_;
  const Costs costs_;
  double most_;
  std::vector<Done> done_;
  double best_ = 1e300;
};

TEST(Synthesize, BoundNeverExceedsTheBestOfAllOrders) {
  for (const auto& [p, m] : {std::pair(2, 2), std::pair(2, 3), std::pair(3, 2)})
    for (const Stage& stage : kStages)
      for (const double most : {1.0, 2.0, 3.0}) {
        SCOPED_TRACE(testing::Message() << "p " << p << " m " << m << " most " << most << " w " << stage.w);
        const Schedule shape = blank("all", p, 1, m, Placement::Looped);
        const Costs costs = Costs::uniform(shape, stage.f, stage.b, stage.w, stage.hop);
        const double best = Exhaustive(shape, costs, most).best();
        EXPECT_LE(makespan_bound(shape, costs, most, 0), best * (1 + 1e-9));
        Problem small = problem(p, m, stage, most);
        small.max_chunks = 1;
        const double found = synthesize(small).timeline.makespan;
        EXPECT_GE(found, best * (1 - 1e-9));
        EXPECT_LE(found, best * (1 + 1e-9)) << "on so small a pipeline the search finds the best";
      }
}

TEST(Greedy, IdlesRatherThanExceedMemory) {
  const Schedule shape = blank("greedy", 2, 2, 4, Placement::Looped);
  const Costs costs = Costs::uniform(shape, 1, 1, 1);
  EXPECT_FALSE(greedy(shape, costs, {1, 0}, {.base = 2}).has_value());  // two chunks need two slots
  const auto made = greedy(shape, costs, {2, 0}, {.base = 2});
  ASSERT_TRUE(made.has_value());
  EXPECT_NO_THROW(check(*made));
  EXPECT_LE(peak(*made), 1);
}

}  // namespace
}  // namespace quintet::schedule
