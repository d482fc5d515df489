#include "comm/recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/local.h"

namespace quintet::comm {
namespace {

Call call_number(uint64_t i) {
  return {.kind = CallKind::Broadcast,
          .dtype = base::DType::BF16,
          .peer = 3,
          .count = 10 * static_cast<int64_t>(i),
          .sequence = i};
}

TEST(Recorder, KeepsTheLastCallsWithEverything) {
  Recorder r(base::RankId(5));
  const int tp = r.intern("tp");
  EXPECT_EQ(r.describe_now(), "rank 5: no call yet");
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t ticket = r.enter(tp, call_number(i));
    if (i != 299) r.leave(ticket);
  }
  const auto entries = r.last();
  ASSERT_EQ(entries.size(), 256u);
  EXPECT_EQ(r.calls(), 300u);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& e = entries[i];
    EXPECT_TRUE(e.call.agrees_with(call_number(i + 44)));
    EXPECT_EQ(e.call.sequence, i + 44);
    EXPECT_EQ(e.communicator, "tp");
    EXPECT_EQ(e.left, i != 255);
    if (e.left) {
      EXPECT_GE(e.left_ns, e.entered_ns);
    }
  }
  EXPECT_NE(r.describe_now().find("rank 5: inside broadcast(count 2990, bf16, root 3) #299 on 'tp'"),
            std::string::npos)
      << r.describe_now();
}

TEST(Recorder, LeavingAfterTheSlotWasReusedIsHarmless) {
  Recorder r(base::RankId(0));
  const int a = r.intern("a");
  const uint64_t slow = r.enter(a, call_number(0));
  for (uint64_t i = 1; i <= 256; ++i) r.enter(a, call_number(i));
  r.leave(slow);
  for (const auto& e : r.last()) EXPECT_FALSE(e.left);
}

TEST(Recorder, ReadersSeeOnlyWholeEntries) {
  Recorder r(base::RankId(0));
  const int a = r.intern("a");
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; i < 200'000; ++i) r.leave(r.enter(a, call_number(i)));
    stop = true;
  });
  while (!stop)
    for (const auto& e : r.last()) ASSERT_EQ(e.call.count, 10 * static_cast<int64_t>(e.call.sequence));
  writer.join();
}

TEST(Recorder, AWorldRecordsItsCalls) {
  run_local_world(2, [](World& w) {
    const auto solo = w.create({w.rank()}, "solo");
    float x = 0;
    w.world().all_reduce(&x, 1, base::DType::F32, ReduceOp::Sum);
    solo->barrier();
    const auto entries = w.recorder().last();
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].communicator, "world");
    EXPECT_EQ(entries[0].call.kind, CallKind::AllReduce);
    EXPECT_EQ(entries[1].communicator, "solo");
    EXPECT_TRUE(entries[1].left);
  });
}

}  // namespace
}  // namespace quintet::comm
