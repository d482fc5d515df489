#include "schedule/generators.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/simulate.h"
#include "schedule/text.h"

namespace quintet::schedule {
namespace {

constexpr int kStages[] = {1, 2, 3, 4, 5, 7, 8, 16};

Timeline unit(const Schedule& s) { return simulate(s, Costs::uniform(s, 1, 1, 1)); }
int peak(const Schedule& s) {
  const std::vector<int> all = in_flight(s).until_w;
  return *std::max_element(all.begin(), all.end());
}

TEST(Generators, EveryNamedScheduleIsLegalAndKeepsItsPromiseExactly) {
  for (const std::string& name : schedule_names())
    for (const int p : kStages)
      for (const int m : {1, 2, p, p + 1, 2 * p - 1, 2 * p, 3 * p, 5 * p}) {
        SCOPED_TRACE(name + " p " + std::to_string(p) + " m " + std::to_string(m));
        const Schedule s = make_schedule(name, p, 0, m);
        EXPECT_EQ(s.name, name);
        EXPECT_EQ(s.micro_batches, m);
        EXPECT_NO_THROW(check(s));
        EXPECT_EQ(in_flight(s).until_w, s.max_in_flight);
      }
}

TEST(Generators, GpipeBubbleAndMemory) {
  for (const int p : kStages)
    for (const int m : {1, 3, p, 4 * p}) {
      const Timeline line = unit(gpipe(p, m));
      EXPECT_DOUBLE_EQ(line.bubble_rate(), (p - 1.0) / (m + p - 1.0)) << p << " " << m;
      EXPECT_EQ(in_flight(gpipe(p, m)).until_w, std::vector<int>(p, m));
    }
}

TEST(Generators, OneFOneBBubbleAndMemory) {
  for (const int p : kStages)
    for (const int m : {1, 3, p, 4 * p}) {
      const Schedule s = one_f_one_b(p, m);
      EXPECT_DOUBLE_EQ(unit(s).bubble_rate(), (p - 1.0) / (m + p - 1.0)) << p << " " << m;
      const Timeline line = simulate(s, Costs::uniform(s, 3, 2, 5));
      EXPECT_DOUBLE_EQ(line.bubble(), (p - 1) * 10.0);
      for (int r = 0; r < p; ++r) EXPECT_EQ(in_flight(s).until_w[r], std::min(m, p - r));
    }
}

TEST(Generators, InterleavedBubbleIsDividedByTheChunks) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int v : {1, 2, 3, 4, 7})
      for (const int rounds : {1, 2, 5}) {
        const int m = rounds * p;
        const Schedule s = interleaved(p, v, m);
        // A chunk is 1/v of a stage: in its units a stage's F + BW is 3v and 1F1B's bubble 3v (p - 1).
        EXPECT_DOUBLE_EQ(unit(s).bubble(), 3.0 * (p - 1)) << p << " " << v << " " << m;
        EXPECT_DOUBLE_EQ(unit(s).bubble_rate(), (p - 1.0) / (v * m + p - 1.0));
        for (int r = 0; r < p; ++r) {
          const int ahead = v == 1 ? p - r - 1 : 2 * (p - r - 1) + (v - 1) * p;
          EXPECT_EQ(in_flight(s).until_w[r], std::min(v * m, ahead + 1));
        }
        if (v > 1 && rounds > 1) {
          EXPECT_DOUBLE_EQ(peak(s) / double(p * v), 1 + (p - 1.0) / (p * v));
        }
      }
}

TEST(Generators, InterleavedEqualsTheTableOfTheDefinition) {
  const Schedule s = interleaved(2, 2, 4);
  EXPECT_EQ(print(s),
            "schedule interleaved\nstages 2\nchunks 2\nmicro_batches 4\nplacement looped\nmax_in_flight 5 3\n"
            "0: 0F0 0F1 1F0 1F1 0F2 1BW0 0F3 1BW1 1F2 0BW0 1F3 0BW1 1BW2 1BW3 0BW2 0BW3\n"
            "1: 0F0 0F1 1F0 1BW0 1F1 1BW1 0F2 0BW0 0F3 0BW1 1F2 1BW2 1F3 1BW3 0BW2 0BW3\n");
}

TEST(Generators, InterleavedTakesAnyNumberOfMicroBatchesAndAnyGroup) {
  for (int p = 1; p <= 6; ++p)
    for (const int v : {2, 3})
      for (int m = 1; m <= 20; ++m)
        for (const int group : {0, p, p + 1, 2 * p - 1, 2 * p, 12}) {
          SCOPED_TRACE(fmt::format("p {} v {} m {} group {}", p, v, m, group));
          const Schedule s = interleaved(p, v, m, group);
          ASSERT_NO_THROW(check(s));
          ASSERT_EQ(in_flight(s).until_w, s.max_in_flight);
          // Never worse than 1F1B, whose bubble is (p - 1) of 3 v.
          ASSERT_LE(unit(s).bubble(), 3.0 * v * (p - 1));
        }
  EXPECT_THROW(interleaved(4, 2, 8, 3), base::UserError);  // group below p
  EXPECT_THROW(make_schedule("1f1b", 4, 1, 8, 4), base::UserError);
  EXPECT_EQ(print(make_schedule("interleaved", 2, 2, 8, 4)), print(interleaved(2, 2, 8, 4)));
}

// Of what is left after whole groups, fewer than p are spread over the groups: 9 = 5 + 4, 11 = 8 + 3 of p 3.
TEST(Generators, InterleavedSpreadsASmallRemainder) {
  const auto first_chunk = [](const Schedule& s) {  // micro-batches that rank 0 runs before it changes chunks
    std::vector<int> sizes;
    int chunk = -1;
    for (const Action& a : s.ranks[0]) {
      if (a.kind != Kind::F) continue;
      if (a.chunk != chunk && a.chunk == 0) sizes.push_back(0);
      chunk = a.chunk;
      if (chunk == 0) ++sizes.back();
    }
    return sizes;
  };
  EXPECT_EQ(first_chunk(interleaved(4, 2, 9)), (std::vector<int>{5, 4}));
  EXPECT_EQ(first_chunk(interleaved(4, 2, 11)), (std::vector<int>{6, 5}));
  EXPECT_EQ(first_chunk(interleaved(3, 2, 11, 8)), (std::vector<int>{8, 3}));
  EXPECT_EQ(first_chunk(interleaved(3, 2, 10, 8)), (std::vector<int>{10}));
  EXPECT_EQ(first_chunk(interleaved(4, 2, 3)), (std::vector<int>{3}));
  EXPECT_EQ(first_chunk(interleaved(4, 2, 8)), (std::vector<int>{4, 4}));
}

struct Fbw {
  double f, b, w;
};

// With B_full = B + W: (p - 1)(F + B_full - 2W), as long as W is not the longest.
TEST(Generators, ZbH1BubbleAndMemory) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int m : {2 * p, 3 * p + 1, 8 * p}) {
      const Schedule s = zb_h1(p, m);
      EXPECT_DOUBLE_EQ(unit(s).bubble(), p - 1.0);  // a third of 1F1B's
      for (const auto& [f, b, w] : {Fbw{2, 2, 1}, Fbw{3, 3, 2}, Fbw{3, 2, 2}, Fbw{2, 3, 2}}) {
        const Timeline line = simulate(s, Costs::uniform(s, f, b, w));
        EXPECT_DOUBLE_EQ(line.bubble(), (p - 1) * (f + (b + w) - 2 * w))
            << p << " " << m << " " << f << b << w;
      }
      EXPECT_EQ(in_flight(s).until_w, std::vector<int>(p, p));
    }
}

TEST(Generators, ZbH2HasNoBubbleWithTwiceTheMemory) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int m : {2 * p, 3 * p + 1, 8 * p}) {
      const Schedule s = zb_h2(p, m);
      EXPECT_DOUBLE_EQ(unit(s).span_bubble(), 0);
      EXPECT_DOUBLE_EQ(unit(s).bubble(), p - 1.0);  // the last rank starts p - 1 after the first
      for (const auto& [f, b, w, hop] : std::vector<std::array<double, 4>>{{2, 2, 1, 0}, {3, 3, 2, 0.5}}) {
        const Timeline line = simulate(s, Costs::uniform(s, f, b, w, hop));
        EXPECT_NEAR(line.span_bubble(), (p - 1) * (f + b + 2 * hop - 2 * w), 1e-9) << p << " " << m;
      }
      EXPECT_EQ(in_flight(s).until_w, std::vector<int>(p, 2 * p - 1));
    }
}

TEST(Generators, ZbVHasNoBubbleWith1F1BsMemory) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
      const Schedule s = zb_v(p, m);
      EXPECT_DOUBLE_EQ(unit(s).span_bubble(), 0) << p << " " << m;
      EXPECT_EQ(in_flight(s).until_w, std::vector<int>(p, 2 * p));  // halves: 1F1B's p
    }
}

// In units of a chunk (half a stage) 1F1B's bubble is 6 (p - 1).
TEST(Generators, VHalfAndVMinTradeMemoryForBubble) {
  for (const int p : {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 24})
    for (const int m : {2 * p, 4 * p, 4 * p + 1}) {
      SCOPED_TRACE(std::to_string(p) + " " + std::to_string(m));
      const Schedule half = v_half(p, m), min = v_min(p, m);
      EXPECT_EQ(peak(half), 2 * (p / 2 + 1));
      EXPECT_EQ(peak(min), 2 * ((p + 1) / 3 + 1));
      EXPECT_LE(unit(half).bubble(), 3 * (p - 1));  // half of 1F1B's
      // Two thirds of 1F1B's; where the pattern has no slot to spare (p = 3k + 1) one period more.
      EXPECT_LE(unit(min).bubble(), 4 * (p - 1) + (p % 3 == 1 ? 4 : 0));
      // The steady state is tight: more micro-batches add their work and nothing else.
      EXPECT_DOUBLE_EQ(unit(half).bubble(), unit(v_half(p, m + 3)).bubble());
      EXPECT_DOUBLE_EQ(unit(min).bubble(), unit(v_min(p, m + 3)).bubble());
    }
}

// With PP = 2p consecutive chunks, F&B the time of a mixed pair and B a whole backward: (PP/2 - 1)(F&B + B -
// 3W).
TEST(Generators, DualPipeVBubbleAndMemory) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
      const Schedule s = dualpipev(p, m);
      EXPECT_DOUBLE_EQ(unit(s).bubble(), (p - 1) * (3.0 + 2.0 - 3.0)) << p << " " << m;
      EXPECT_EQ(in_flight(s).until_w, std::vector<int>(p, 2 * p + 1));  // PP + 1
      EXPECT_TRUE(
          std::any_of(s.ranks[0].begin(), s.ranks[0].end(), [](const Action& a) { return a.with_next; }));
    }
}

TEST(Generators, MixingSavesTimeInTheSteadyState) {
  const int p = 4, m = 20;
  const Schedule s = dualpipev(p, m);
  Costs costs = Costs::uniform(s, 1, 1, 1);
  const double apart = simulate(s, costs).makespan;
  costs.mix_saving = 0.5;
  const Timeline mixed = simulate(s, costs);
  int pairs = 0;
  for (const Action& a : s.ranks[0]) pairs += a.with_next;
  EXPECT_DOUBLE_EQ(mixed.busy[0], 6.0 * m - 0.5 * pairs);
  EXPECT_LT(mixed.makespan, apart - 0.5 * (pairs - p));
}

TEST(Generators, Placements) {
  const Schedule looped = interleaved(3, 2, 3), v = zb_v(3, 6);
  EXPECT_EQ(looped.stage_of(1, 1), 4);
  EXPECT_EQ(v.stage_of(0, 1), 5);
  EXPECT_EQ(v.stage_of(2, 1), 3);
  for (const Schedule& s : {looped, v})
    for (int stage = 0; stage < s.virtual_stages(); ++stage) {
      const Home home = s.home_of(stage);
      EXPECT_EQ(s.stage_of(home.rank, home.chunk), stage);
    }
}

TEST(Generators, WrongNamesAndNumbersAreRefused) {
  try {
    make_schedule("zb-h3", 2, 0, 4);
    FAIL();
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'zb-h1'"), std::string::npos) << e.what();
  }
  EXPECT_THROW(make_schedule("zb-v", 2, 3, 4), base::UserError);
  EXPECT_THROW(make_schedule("1f1b", 0, 0, 4), base::UserError);
  EXPECT_THROW(make_schedule("1f1b", 2, 0, 0), base::UserError);
}

}  // namespace
}  // namespace quintet::schedule
