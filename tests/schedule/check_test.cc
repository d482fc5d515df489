#include "schedule/check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "schedule/generators.h"
#include "schedule/simulate.h"
#include "schedule/text.h"

namespace quintet::schedule {
namespace {

std::string why_not(const Schedule& s) {
  try {
    check(s);
  } catch (const base::UserError& e) {
    return e.what();
  }
  return "";
}

size_t find(const Schedule& s, int rank, const std::string& name) {
  for (size_t i = 0; i < s.ranks[rank].size(); ++i)
    if (to_text(s.ranks[rank][i]) == name) return i;
  ADD_FAILURE() << "no " << name;
  return 0;
}

void move(Schedule& s, int rank, const std::string& name, const std::string& before) {
  const Action action = s.ranks[rank][find(s, rank, name)];
  s.ranks[rank].erase(s.ranks[rank].begin() + find(s, rank, name));
  s.ranks[rank].insert(s.ranks[rank].begin() + find(s, rank, before), action);
}

// One rank: F0, F1 mixed with BW0, F2, BW1, BW2.
Schedule mixed_pair() {
  Schedule s = gpipe(1, 3);
  s.ranks[0] = {{Kind::F, 0, 0}, {Kind::F, 0, 1},  {Kind::BW, 0, 0},
                {Kind::F, 0, 2}, {Kind::BW, 0, 1}, {Kind::BW, 0, 2}};
  s.ranks[0][1].with_next = true;
  return s;
}

TEST(Check, AMissingActionIsNamed) {
  for (const char* name : {"0F2", "0B2", "0W2"}) {
    Schedule s = zb_h1(3, 4);
    s.ranks[1].erase(s.ranks[1].begin() + find(s, 1, name));
    EXPECT_EQ(why_not(s), std::string("schedule zb-h1: rank 1: ") + name + " is missing");
  }
  Schedule s = one_f_one_b(3, 4);
  s.ranks[2].pop_back();
  EXPECT_EQ(why_not(s), "schedule 1f1b: rank 2: 0BW3 is missing");
}

TEST(Check, ADuplicateActionIsNamed) {
  Schedule s = zb_v(2, 4);
  s.ranks[0].push_back({Kind::W, 1, 3});
  EXPECT_EQ(why_not(s), "schedule zb-v: rank 0: 1W3 appears twice");
  s = dualpipev(2, 4);
  s.ranks[0].push_back({Kind::B, 1, 3});
  EXPECT_NE(why_not(s).find("rank 0: 1BW3 and 1B3 compute the same gradients"), std::string::npos)
      << why_not(s);
}

TEST(Check, OrderOnOneRank) {
  Schedule s = zb_h1(2, 4);
  move(s, 1, "0B1", "0F1");
  EXPECT_EQ(why_not(s), "schedule zb-h1: rank 1: 0B1 comes before 0F1");
  s = zb_h1(2, 4);
  move(s, 0, "0W0", "0B0");
  EXPECT_EQ(why_not(s), "schedule zb-h1: rank 0: 0W0 comes before 0B0");
  // First in the list.
  s = zb_h1(2, 4);
  move(s, 1, "0B0", "0F0");
  EXPECT_EQ(why_not(s), "schedule zb-h1: rank 1: 0B0 comes before 0F0");
  s = one_f_one_b(2, 4);
  move(s, 1, "0BW0", "0F0");
  EXPECT_EQ(why_not(s), "schedule 1f1b: rank 1: 0BW0 comes before 0F0");
  s = gpipe(1, 1);
  s.splits_backward = true;
  const Action f{Kind::F, 0, 0}, b{Kind::B, 0, 0}, bw{Kind::BW, 0, 0};
  for (const std::vector<Action>& order : {std::vector<Action>{bw, b, f}, {b, bw, f}}) {
    s.ranks[0] = order;
    EXPECT_EQ(why_not(s), "schedule gpipe: rank 0: 0BW0 and 0B0 compute the same gradients");
  }
}

TEST(Check, OutOfRangeAndUndeclaredSplits) {
  Schedule s = one_f_one_b(2, 4);
  s.ranks[0][0].micro = 4;
  EXPECT_NE(why_not(s).find("rank 0: 0F4 is out of range"), std::string::npos);
  s = zb_h1(2, 4);
  s.splits_backward = false;
  EXPECT_NE(why_not(s).find("splits a backward"), std::string::npos);
  s = one_f_one_b(2, 4);
  s.ranks.pop_back();
  EXPECT_NE(why_not(s).find("2 stages, but actions for 1 ranks"), std::string::npos);
  s = zb_v(2, 4);
  s.chunks = 3;
  EXPECT_NE(why_not(s).find("V placement requires 2 chunks"), std::string::npos);
}

// Rank 0 needs the gradient of micro-batch 0 before it has sent what rank 1 runs first.
TEST(Check, ADeadlockNamesTheCycle) {
  Schedule s = one_f_one_b(2, 2);
  s.max_in_flight.clear();
  s.ranks[0] = {{Kind::F, 0, 0}, {Kind::BW, 0, 0}, {Kind::F, 0, 1}, {Kind::BW, 0, 1}};
  s.ranks[1] = {{Kind::F, 0, 0}, {Kind::F, 0, 1}, {Kind::BW, 0, 0}, {Kind::BW, 0, 1}};
  EXPECT_EQ(why_not(s),
            "schedule 1f1b: deadlock: rank 0 at 0BW0 waits for 0B0 on rank 1, rank 1 at 0F1 waits for 0F1 on "
            "rank 0");
  EXPECT_THROW(simulate(s, Costs::uniform(s, 1, 1, 1)), base::UserError);
}

TEST(Check, MessagesMustBeUsedInTheOrderSent) {
  Schedule s = gpipe(2, 3);
  std::swap(s.ranks[1][1], s.ranks[1][2]);
  EXPECT_EQ(why_not(s), "schedule gpipe: rank 1 runs 0F2 next, but rank 0 first sends the input of 0F1");
  s = gpipe(2, 3);
  std::swap(s.ranks[1][3], s.ranks[1][4]);
  EXPECT_EQ(why_not(s), "schedule gpipe: rank 0 runs 0B0 next, but rank 1 first sends the input of 0B1");
  // The same odd order on both ends is legal.
  std::swap(s.ranks[0][3], s.ranks[0][4]);
  EXPECT_EQ(why_not(s), "");
}

TEST(Check, MoreInFlightThanPromised) {
  Schedule s = one_f_one_b(4, 8);
  move(s, 1, "0F3", "0BW0");
  EXPECT_EQ(why_not(s), "schedule 1f1b: rank 1: at 0F3 it holds 4 activations, but promises at most 3");
  s.max_in_flight[1] = 4;
  EXPECT_EQ(why_not(s), "");
  s = zb_h1(4, 8);  // one W later than promised
  move(s, 0, "0F4", "0W0");
  EXPECT_EQ(why_not(s), "schedule zb-h1: rank 0: at 0F4 it holds 5 activations, but promises at most 4");
}

TEST(Check, MixedPairs) {
  EXPECT_EQ(why_not(mixed_pair()), "");
  Schedule split = mixed_pair();
  split.splits_backward = true;
  split.ranks[0][2].kind = Kind::B;
  split.ranks[0].push_back({Kind::W, 0, 0});
  EXPECT_EQ(why_not(split), "");
  Schedule s = dualpipev(2, 4);
  s.ranks[0][0].with_next = true;  // F with F
  EXPECT_NE(why_not(s).find("0F0 is marked as mixed with the next action"), std::string::npos);
  s = gpipe(1, 1);
  s.ranks[0][0].with_next = true;  // F with its own backward
  EXPECT_EQ(why_not(s), "schedule gpipe: deadlock: rank 0 at 0BW0 waits for 0F0 on rank 0");
}

// Random mutations of legal schedules: dropping, duplicating or moving an action is refused unless the result
// still runs; then it has all actions and a finite makespan.
TEST(Check, RandomMutations) {
  int refused = 0, legal = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t n) { return base::philox(seed, draws++)[0] % n; };
    const auto names = schedule_names();
    Schedule s = make_schedule(names[below(names.size())], 2 + below(3), 0, 12);
    s.max_in_flight.clear();
    std::vector<Action>& actions = s.ranks[below(s.stages)];
    const size_t from = below(actions.size()), to = below(actions.size() - 1);
    const uint64_t kind = below(3);
    Action action = actions[from];
    for (Action& a : actions) a.with_next = false;
    action.with_next = false;
    if (kind != 1) actions.erase(actions.begin() + from);
    if (kind != 0) actions.insert(actions.begin() + to, action);
    const std::string reason = why_not(s);
    if (kind < 2) {
      EXPECT_NE(reason.find(to_text(action)), std::string::npos) << seed << ": " << reason;
    }
    if (reason.empty()) {
      ++legal;
      EXPECT_GT(simulate(s, Costs::uniform(s, 1, 1, 1)).makespan, 0);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 450);
  EXPECT_GT(legal, 5);
}

}  // namespace
}  // namespace quintet::schedule
