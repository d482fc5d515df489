// Ranks as threads: every collective against a dense reference, and every failure mode.
#include "comm/local.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/f16.h"
#include "comm/collective_checks.h"

namespace quintet::comm {
namespace {

using base::DType;
using base::RankId;
using std::chrono::milliseconds;

class LocalWorldSize : public ::testing::TestWithParam<int> {};

TEST_P(LocalWorldSize, CollectivesEqualDense) {
  const int size = GetParam();
  run_local_world(size, [&](World& w) {
    ASSERT_EQ(w.size(), size);
    ASSERT_EQ(w.world().rank(), w.rank().value);
    testing::check_collectives(w.world(), 1, size <= 8 ? 8 : 4);
    testing::check_sends(w.world(), 2);
    testing::check_exchanges(w.world(), 3);
  });
}

TEST_P(LocalWorldSize, GridsOfSubGroupsOnTwoThreads) {
  const int size = GetParam();
  for (int columns = 1; columns <= size; ++columns)
    if (size % columns == 0) run_local_world(size, [&](World& w) { testing::check_grid(w, columns, 7, 2); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalWorldSize, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 12, 16));

TEST(Local, LargePayloadsEqualDense) {
  run_local_world(4, [](World& w) {
    constexpr int64_t kCount = 300'001;
    std::vector<int64_t> data(kCount);
    for (int64_t i = 0; i < kCount; ++i) data[static_cast<size_t>(i)] = (i + 1) * (w.rank().value + 1);
    w.world().all_reduce(data.data(), kCount, DType::I64, ReduceOp::Sum);
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], (i + 1) * 10);
  });
}

TEST(Local, MaxPropagatesNanFromAnyMember) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int poisoned = 0; poisoned < 3; ++poisoned)
    run_local_world(3, [&](World& w) {
      const bool me = w.rank().value == poisoned;
      float f[2] = {me ? kNan : 1.0f + static_cast<float>(w.rank().value),
                    static_cast<float>(w.rank().value)};
      w.world().all_reduce(f, 2, DType::F32, ReduceOp::Max);
      EXPECT_TRUE(std::isnan(f[0]));
      EXPECT_EQ(f[1], 2.0f);
      double d = me ? kNan : 5.0;
      w.world().all_reduce(&d, 1, DType::F64, ReduceOp::Max);
      EXPECT_TRUE(std::isnan(d));
      base::Bf16 b(me ? kNan : 5.0f);
      w.world().all_reduce(&b, 1, DType::BF16, ReduceOp::Max);
      EXPECT_TRUE(std::isnan(static_cast<float>(b)));
      float whole[3] = {f[1], f[1], f[1]}, part = 0;
      whole[1] = me ? kNan : 0.0f;
      w.world().reduce_scatter(whole, &part, 1, DType::F32, ReduceOp::Max);
      EXPECT_EQ(std::isnan(part), w.rank().value == 1);
    });
}

TEST(Local, Bf16SumIsRoundedOnce) {
  // 256 + 1 is 256 in bf16 at every step; in f32 the three ones add up to 259, which rounds to 260.
  run_local_world(4, [](World& w) {
    base::Bf16 x(w.rank().value == 0 ? 256.0f : 1.0f);
    w.world().all_reduce(&x, 1, DType::BF16, ReduceOp::Sum);
    EXPECT_EQ(static_cast<float>(x), 260.0f);
  });
}

TEST(Local, F16SumIsRoundedOnce) {
  // 2048 + 1 is 2048 in f16 at every step; in f32 the three ones add up to 2051, which rounds to 2052.
  run_local_world(4, [](World& w) {
    base::F16 x(w.rank().value == 0 ? 2048.0f : 1.0f), most(static_cast<float>(w.rank().value));
    w.world().all_reduce(&x, 1, DType::F16, ReduceOp::Sum);
    EXPECT_EQ(static_cast<float>(x), 2052.0f);
    w.world().all_reduce(&most, 1, DType::F16, ReduceOp::Max);
    EXPECT_EQ(static_cast<float>(most), 3.0f);
    base::F16 large(40000.0f);
    w.world().all_reduce(&large, 1, DType::F16, ReduceOp::Sum);
    EXPECT_TRUE(std::isinf(static_cast<float>(large)));
  });
}

TEST(Local, GroupsOfTheSameMembersAreSeparateAndKeepTheirOrder) {
  run_local_world(3, [](World& w) {
    const std::vector<RankId> backwards = {RankId(2), RankId(1), RankId(0)};
    const auto a = w.create(backwards), b = w.create(backwards, "again");
    EXPECT_EQ(a->rank(), 2 - w.rank().value);
    EXPECT_EQ(a->name(), "[2,1,0]");
    EXPECT_EQ(b->name(), "again");
    int32_t got[3] = {};
    const int32_t mine = w.rank().value;
    auto on_b = std::async(std::launch::async, [&] { testing::check_collectives(*b, 3, 2); });
    a->all_gather(&mine, got, 1, DType::I32);
    on_b.get();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i], 2 - i);
  });
}

// The text of the E that body throws on each rank; "" where it throws nothing.
template <class E>
std::vector<std::string> texts_of(int size, const std::function<void(World&)>& body,
                                  LocalOptions options = {}) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  run_local_world(
      size,
      [&](World& w) {
        try {
          body(w);
        } catch (const E& e) {
          texts[w.rank().index()] = e.what();
        }
      },
      options);
  return texts;
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Local, MismatchThrowsOnAllMembersNamingBothSides) {
  const auto differ = [](const std::function<void(Communicator&)>& odd, const char* odd_text) {
    const auto texts = texts_of<MismatchError>(4, [&](World& w) {
      std::vector<float> data(64);
      if (w.rank().value == 2)
        odd(w.world());
      else
        w.world().all_reduce(data.data(), 8, DType::F32, ReduceOp::Sum);
    });
    for (const std::string& text : texts) {
      EXPECT_CONTAINS(text, "rank 0 all_reduce(count 8, f32, sum) #0");
      EXPECT_CONTAINS(text, odd_text);
    }
  };
  std::vector<double> d(64);
  differ([&](Communicator& c) { c.all_reduce(d.data(), 9, DType::F32, ReduceOp::Sum); },
         "rank 2 all_reduce(count 9");
  differ([&](Communicator& c) { c.all_reduce(d.data(), 8, DType::F64, ReduceOp::Sum); }, "f64");
  differ([&](Communicator& c) { c.all_reduce(d.data(), 8, DType::F32, ReduceOp::Max); }, "max");
  differ([&](Communicator& c) { c.barrier(); }, "rank 2 barrier #0");
  // One side considers the call small, the other large.
  std::vector<float> large(100'000);
  differ([&](Communicator& c) { c.all_reduce(large.data(), 100'000, DType::F32, ReduceOp::Sum); }, "100000");
}

TEST(Local, BroadcastRootsMustAgree) {
  for (const auto& text : texts_of<MismatchError>(2, [](World& w) {
         int32_t x = 0;
         w.world().broadcast(&x, 1, DType::I32, w.rank().value);
       })) {
    EXPECT_CONTAINS(text, "root 0");
    EXPECT_CONTAINS(text, "root 1");
  }
}

TEST(Local, SendAndRecvMustAgree) {
  for (const auto& text : texts_of<MismatchError>(2, [](World& w) {
         float x[4] = {};
         if (w.rank().value == 0)
           w.world().send(x, 4, DType::F32, 1);
         else
           w.world().recv(x, 3, DType::F32, 0);
       })) {
    EXPECT_CONTAINS(text, "rank 0 send(count 4, f32, to member 1)");
    EXPECT_CONTAINS(text, "rank 1 recv(count 3, f32, from member 0)");
  }
}

TEST(Local, AFailedCommunicatorStaysFailedAndOthersLive) {
  run_local_world(2, [](World& w) {
    const auto other = w.create({RankId(0), RankId(1)}, "other");
    int32_t x = 1;
    const auto mismatch = [&] { w.world().all_reduce(&x, w.rank().value, DType::I32, ReduceOp::Sum); };
    EXPECT_THROW(mismatch(), MismatchError);
    EXPECT_THROW(w.world().barrier(), MismatchError);
    EXPECT_THROW(w.world().send(&x, 1, DType::I32, 1 - w.rank().value), MismatchError);
    other->all_reduce(&x, 1, DType::I32, ReduceOp::Sum);
    EXPECT_EQ(x, 2);
  });
}

// The messages of ranks 0 and 1, which wait in an all_reduce for rank 2, which never arrives.
std::vector<std::string> texts_of_timeout(milliseconds timeout) {
  std::promise<void> over;
  const auto wait_over = over.get_future().share();
  return texts_of<TimeoutError>(3, [&](World& w) {
    w.world().barrier();
    if (w.rank().value == 2) return wait_over.wait();
    w.set_timeout(timeout);
    float x[5] = {};
    try {
      w.world().all_reduce(x, 5, DType::F32, ReduceOp::Sum);
    } catch (...) {
      if (w.rank().value == 0) over.set_value();
      throw;
    }
  });
}

TEST(Local, TimeoutNamesTheCallAndWhatTheOthersDid) {
  // On a busy machine rank 0 may time out before rank 1 has entered the call: then both get more time.
  const std::string inside = "rank 1: inside all_reduce(count 5, f32, sum) #1";
  std::vector<std::string> texts;
  for (milliseconds timeout(50); timeout < std::chrono::minutes(2); timeout *= 4) {
    texts = texts_of_timeout(timeout);
    if (texts[0].find(inside) != std::string::npos) break;
  }
  EXPECT_EQ(texts[2], "");
  for (int r = 0; r < 2; ++r) {
    const std::string& text = texts[static_cast<size_t>(r)];
    EXPECT_CONTAINS(text, "in all_reduce(count 5, f32, sum) #1 on communicator 'world'");
    EXPECT_CONTAINS(text, "rank 2: left barrier #0");
    EXPECT_CONTAINS(text, inside);
  }
}

TEST(Local, SendAndRecvTimeOut) {
  const auto alone = [](const std::function<void(World&)>& call) {
    run_local_world(2, [&](World& w) {
      w.set_timeout(milliseconds(20));
      if (w.rank().value == 0) {
        EXPECT_THROW(call(w), TimeoutError);
      }
    });
  };
  alone([](World& w) { w.world().send(&w, 1, DType::U8, 1); });
  alone([](World& w) {
    uint8_t x;
    w.world().recv(&x, 1, DType::U8, 1);
  });
}

TEST(Local, AbortFreesEveryBlockedRankAndNamesTheAborter) {
  std::atomic<int> freed = 0;
  try {
    run_local_world(4, [&](World& w) {
      const auto pair = w.create({RankId(w.rank().value / 2 * 2), RankId(w.rank().value / 2 * 2 + 1)});
      const auto solo = w.create({w.rank()});
      w.world().barrier();
      uint8_t x = 0;
      try {
        switch (w.rank().value) {
          case 0:
            return w.abort("out of ideas");
          case 1:
            return w.world().barrier();
          case 2:
            return pair->recv(&x, 1, DType::U8, 1);
          default:
            return pair->recv(&x, 1, DType::U8, 0);
        }
      } catch (const AbortedError& e) {
        EXPECT_CONTAINS(std::string(e.what()), "rank 0 aborted the job: out of ideas");
        solo->barrier();
        ++freed;
        throw;
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const AbortedError&) {
  }
  EXPECT_EQ(freed, 3);
}

TEST(Local, TheCauseIsRethrownNotTheAbortsItLeadsTo) {
  for (int guilty = 0; guilty < 4; ++guilty) try {
      run_local_world(4, [&](World& w) {
        if (w.rank().value == guilty) throw base::UserError("the data file is missing");
        w.world().barrier();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const base::UserError& e) {
      EXPECT_STREQ(e.what(), "the data file is missing");
    }
}

TEST(Local, AbortWhilePeersCopyLargeBuffersTouchesNoFreedMemory) {
  // Every rank frees its buffer as soon as it gets the exception; a sanitizer would detect a peer that still
  // reads it.
  for (int round = 0; round < 20; ++round) try {
      run_local_world(4, [&](World& w) {
        for (int i = 0;; ++i) {
          std::vector<float> data(100'000, 1.0f);
          w.world().all_reduce(data.data(), 100'000, DType::F32, ReduceOp::Sum);
          ASSERT_EQ(data[99'999], 4.0f);
          if (w.rank().value == round % 4 && i == round % 3) throw std::out_of_range("now");
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::out_of_range&) {
    }
}

TEST(Local, UnequalCountsOfAnExchangeAreNamedOnAllMembers) {
  // Member 2 expects 4 of member 1's 5; the last to arrive is any of them, and the sizes are on both sides of
  // the limit up to which one thread works for all.
  for (const int64_t scale : {1, 100'000})
    for (const bool own : {false, true}) {
      const auto texts = texts_of<MismatchError>(3, [&](World& w) {
        std::vector<uint8_t> send(static_cast<size_t>(5 * scale)), recv(static_cast<size_t>(15 * scale));
        const std::vector<int64_t> zeros(3), places = {0, 5 * scale, 10 * scale};
        std::vector<int64_t> counts(3, 5 * scale), expected = counts;
        if (w.rank().value == 2) expected[own ? 2 : 1] = 4 * scale;
        w.world().all_to_all_v(send.data(), zeros, counts, recv.data(), places, expected, DType::U8);
      });
      for (const std::string& text : texts)
        EXPECT_EQ(text,
                  fmt::format("all_to_all_v(u8) #0 on communicator 'world': rank {} sends {} elements to "
                              "rank 2, which expects {}",
                              own ? 2 : 1, 5 * scale, 4 * scale));
    }
  const auto alone = texts_of<MismatchError>(1, [&](World& w) {
    const std::vector<int64_t> zero = {0}, one = {1};
    w.world().all_to_all_v(nullptr, zero, zero, nullptr, zero, one, DType::U8);
  });
  EXPECT_CONTAINS(alone[0], "rank 0 sends 0 elements to rank 0, which expects 1");
}

TEST(Local, MisuseIsNamed) {
  run_local_world(2, [](World& w) {
    EXPECT_THROW(w.create({RankId(1 - w.rank().value)}), base::InternalError);
    EXPECT_THROW(w.create({w.rank(), w.rank()}), base::InternalError);
    EXPECT_THROW(w.create({w.rank(), RankId(2)}), base::InternalError);
    uint16_t half = 0;
    EXPECT_THROW(w.world().all_reduce(&half, 1, DType::I16, ReduceOp::Sum), base::InternalError);
    EXPECT_THROW(w.world().all_reduce(&half, -1, DType::U8, ReduceOp::Sum), base::InternalError);
    EXPECT_THROW(w.world().broadcast(&half, 1, DType::U8, 2), base::InternalError);
    EXPECT_THROW(w.world().send(&half, 1, DType::U8, w.rank().value), base::InternalError);
    const std::vector<int64_t> none = {0, 0}, negative = {0, -1}, short_list = {0};
    EXPECT_THROW(w.world().all_to_all_v(&half, none, negative, &half, none, none, DType::U8),
                 base::InternalError);
    EXPECT_THROW(w.world().all_to_all_v(&half, none, none, &half, short_list, none, DType::U8),
                 base::InternalError);
    w.world().broadcast(&half, 1, DType::I16, 0);  // moving i16 is fine, and the communicator is unharmed
  });
}

}  // namespace
}  // namespace quintet::comm
