// What a communicator counts about its calls, and the bandwidth that follows from it.
#include "comm/call_totals.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "comm/local.h"

namespace quintet::comm {
namespace {

using base::DType;

std::map<CallKind, CallTotals> totals_of(const Communicator& c) {
  std::map<CallKind, CallTotals> list;
  for (const CallTotals& t : c.totals()) list[t.kind] = t;
  return list;
}

// nccl-tests: an all-reduce moves 2(n-1)/n of its message over every rank's link, the others (n-1)/n.
TEST(CallTotals, BusFactorsAreThoseOfNcclTests) {
  for (const int n : {2, 3, 8, 64}) {
    const double part = (n - 1.0) / n;
    EXPECT_DOUBLE_EQ(bus_factor(CallKind::AllReduce, n), 2 * part);
    for (const CallKind kind : {CallKind::AllGather, CallKind::ReduceScatter, CallKind::AllToAll})
      EXPECT_DOUBLE_EQ(bus_factor(kind, n), part);
    EXPECT_EQ(bus_factor(CallKind::Send, n), 1);
  }
}

TEST(CallTotals, CallsAndBytesOfWholeMessages) {
  constexpr int kRanks = 4;
  run_local_world(kRanks, [&](World& world) {
    const auto c = world.create({base::RankId(0), base::RankId(1), base::RankId(2), base::RankId(3)});
    std::vector<float> a(64, 1), b(64);
    c->all_reduce(a.data(), 12, DType::F32, ReduceOp::Sum);
    c->all_reduce(a.data(), 12, DType::F32, ReduceOp::Sum);
    c->all_reduce(a.data(), 5, DType::F32, ReduceOp::Sum);
    c->all_gather(a.data(), b.data(), 3, DType::F32);
    c->reduce_scatter(a.data(), b.data(), 2, DType::F32, ReduceOp::Sum);
    const std::vector<int64_t> at = {0, 2, 4, 6}, counts(kRanks, 2);
    c->all_to_all_v(a.data(), at, counts, b.data(), at, counts, DType::F32);
    const auto all = totals_of(*c);
    EXPECT_EQ(all.at(CallKind::AllReduce).calls, 3);
    EXPECT_EQ(all.at(CallKind::AllReduce).bytes, 4 * (12 + 12 + 5));
    EXPECT_EQ(all.at(CallKind::AllGather).bytes, 4 * 3 * kRanks);
    EXPECT_EQ(all.at(CallKind::ReduceScatter).bytes, 4 * 2 * kRanks);
    EXPECT_EQ(all.at(CallKind::AllToAllV).bytes, 4 * 2 * (kRanks - 1)) << "what this rank sends to others";
    EXPECT_EQ(all.size(), 4u);
  });
}

// Times are given, so that no verdict depends on the machine.
TEST(CallTotals, WaitingIsTimeBeyondTheQuickestCallOfTheSameSize) {
  CallCounter counter;
  counter.add(CallKind::AllReduce, 100, 5'000'000'000);
  counter.add(CallKind::AllReduce, 100, 2'000'000'000);
  counter.add(CallKind::AllReduce, 100, 2'000'000'000);
  counter.add(CallKind::AllReduce, 800, 9'000'000'000);  // larger, not late
  counter.add(CallKind::AllToAllV, 10, 1'000'000'000);
  counter.add(CallKind::AllToAllV, 90, 7'000'000'000);
  const std::vector<CallTotals> all = counter.totals();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (CallTotals{CallKind::AllReduce, 4, 1100, 18, 3}));
  EXPECT_EQ(all[1], (CallTotals{CallKind::AllToAllV, 2, 100, 8, 0})) << "sizes differ: nothing is known";
}

}  // namespace
}  // namespace quintet::comm
