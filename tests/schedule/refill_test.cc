#include "schedule/refill.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

std::vector<Action> without_w(const std::vector<Action>& actions) {
  std::vector<Action> out;
  for (const Action& a : actions)
    if (a.kind != Kind::W) out.push_back(a);
  return out;
}

TEST(Refill, KeepsFAndBAndIsLegalWithinTheMemory) {
  for (const int p : {2, 4, 8})
    for (const int m : {p, 3 * p})
      for (const double w : {0.3, 1.0, 1.4}) {
        for (const Schedule& s : {zb_h1(p, m), zb_h2(p, m), zb_v(p, m), v_half(p, m), v_min(p, m)}) {
          SCOPED_TRACE(s.name + " p " + std::to_string(p) + " m " + std::to_string(m));
          const Costs costs = Costs::uniform(s, 1, 1.1, w, 0.05);
          const int most = 2 * p;
          const Schedule r = refill_weights(s, costs, {double(most), 0});
          EXPECT_NO_THROW(check(r));
          for (int rank = 0; rank < p; ++rank) {
            EXPECT_EQ(without_w(r.ranks[rank]), without_w(s.ranks[rank]));
            EXPECT_LE(r.max_in_flight[rank], most);
          }
        }
      }
}

// W takes half of F: plain ZB-H2 waits (p - 1)(F + B - 2W); with W placed by cost almost nothing.
TEST(Refill, CheapWFillTheGaps) {
  const int p = 8, m = 64;
  const Schedule s = zb_h2(p, m);
  const Costs costs = Costs::uniform(s, 2, 2, 1);
  EXPECT_DOUBLE_EQ(simulate(s, costs).span_bubble(), (p - 1) * 2.0);
  const Schedule r = refill_weights(s, costs, {2.0 * p, 0.6});
  EXPECT_LT(simulate(r, costs).span_bubble_rate(), 0.01);
}

TEST(Refill, IsNeverWorseThanTheInput) {
  for (const int p : {2, 4, 8})
    for (const double w : {0.2, 0.7, 1.0, 1.3})
      for (const Schedule& s : {zb_h1(p, 3 * p), zb_h2(p, 3 * p), zb_v(p, 3 * p)}) {
        const Costs costs = Costs::uniform(s, 1, 1.05, w, 0.03);
        const Schedule r = refill_weights(s, costs, {double(s.max_in_flight[0]), 0});
        EXPECT_LE(simulate(r, costs).longest_span, simulate(s, costs).longest_span * (1 + 1e-9))
            << s.name << p << w;
      }
}

TEST(Refill, RefusesWhatItCannotDo) {
  const Schedule whole = one_f_one_b(2, 4), split = zb_h2(4, 8);
  EXPECT_THROW(refill_weights(whole, Costs::uniform(whole, 1, 1, 1), {8, 0}), base::UserError);
  EXPECT_THROW(refill_weights(split, Costs::uniform(split, 1, 1, 1), {6, 0}), base::UserError);
  EXPECT_NO_THROW(refill_weights(split, Costs::uniform(split, 1, 1, 1), {7, 0}));
}

}  // namespace
}  // namespace quintet::schedule
