// What can be tested about communication between GPUs without one: how a rank waits, and its error message
// where the backend cannot work. The calls themselves are tested by tests/gpu/nccl.
#include "comm/device_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "base/error.h"
#include "comm/local.h"

namespace quintet::comm {
namespace {

using base::DType;

// Can only fail and be aborted.
class Failing final : public DeviceCommunicator {
 public:
  Failing(int fails_at, std::vector<std::string>& aborts)
      : DeviceCommunicator("failing", 0, {base::RankId(0)}), fails_at_(fails_at), aborts_(aborts) {}
  void all_reduce(void*, int64_t, DType, ReduceOp, DeviceStream) override {}
  void all_gather(const void*, void*, int64_t, DType, DeviceStream) override {}
  void reduce_scatter(const void*, void*, int64_t, DType, ReduceOp, DeviceStream) override {}
  void all_to_all(const void*, void*, int64_t, DType, DeviceStream) override {}
  void all_to_all_v(const Exchange&, DType, DeviceStream) override {}
  void broadcast(void*, int64_t, DType, int, DeviceStream) override {}
  void send(const void*, int64_t, DType, int, DeviceStream) override {}
  void recv(void*, int64_t, DType, int, DeviceStream) override {}
  void register_memory(void*, int64_t) override {}
  void check() override {
    if (checks_++ == fails_at_) throw CommError("the cable was pulled");
  }
  void abort(const std::string& reason) override { aborts_.push_back(reason); }

 private:
  const int fails_at_;
  int checks_ = 0;
  std::vector<std::string>& aborts_;
};

constexpr int kNever = -1;

DeviceCommunicators two(int first_fails_at, std::vector<std::string>& aborts) {
  DeviceCommunicators made;
  made.push_back(std::make_unique<Failing>(first_fails_at, aborts));
  made.push_back(std::make_unique<Failing>(kNever, aborts));
  return made;
}

TEST(WaitForDevice, ReturnsWhenDone) {
  run_local_world(1, [](World& world) {
    std::vector<std::string> aborts;
    int asked = 0;
    wait_for_device([&] { return ++asked == 5; }, two(kNever, aborts), world);
    EXPECT_EQ(asked, 5);
    EXPECT_TRUE(aborts.empty());
  });
}

TEST(WaitForDevice, AFailureAbortsAllAndIsThrown) {
  // At the first check, and at the last, after the work is done.
  for (const int at : {0, 3}) {
    run_local_world(1, [&](World& world) {
      std::vector<std::string> aborts;
      int asked = 0;
      try {
        wait_for_device([&] { return ++asked == 4; }, two(at, aborts), world);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const CommError& e) {
        EXPECT_STREQ(e.what(), "the cable was pulled");
      }
      EXPECT_EQ(aborts, std::vector<std::string>(2, "the cable was pulled"));
    });
  }
}

TEST(WaitForDevice, TheTimeoutAbortsAllAndReportsTheLastCalls) {
  run_local_world(1, [](World& world) {
    std::vector<std::string> aborts;
    world.world().barrier();
    world.set_timeout(std::chrono::milliseconds(5));
    EXPECT_EQ(world.timeout(), std::chrono::milliseconds(5));
    try {
      wait_for_device([] { return false; }, two(kNever, aborts), world);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const TimeoutError& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0 waited 0.005 s"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("barrier"), std::string::npos) << e.what();
    }
    EXPECT_EQ(aborts.size(), 2u);
  });
}

TEST(WaitForDevice, EveryMessageEndsWithTheDevicesProgress) {
  run_local_world(1, [](World& world) {
    std::vector<std::string> aborts;
    world.set_timeout(std::chrono::milliseconds(5));
    const auto where = [&] {
      EXPECT_TRUE(aborts.empty()) << "asked after an abort, which lets the device go on";
      return std::string(" at call 3");
    };
    const auto ends = [](const std::exception& e) { return std::string(e.what()).ends_with(" at call 3"); };
    try {
      wait_for_device([] { return false; }, two(kNever, aborts), world, where);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const TimeoutError& e) {
      EXPECT_TRUE(ends(e)) << e.what();
    }
    aborts.clear();
    world.set_timeout(std::chrono::minutes(10));  // so that a busy machine sees the failure first
    try {
      wait_for_device([] { return false; }, two(1, aborts), world, where);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CommError& e) {
      EXPECT_TRUE(ends(e) && std::string(e.what()).starts_with("the cable was pulled")) << e.what();
    }
  });
}

// A rank that waits for its GPU learns that another has ended the job, long before its own timeout.
TEST(WaitForDevice, EndsWhenAnotherRankAborts) {
  std::string heard;
  std::atomic<bool> waiting = false;  // an abort before rank 0 has joined the world would not reach the wait
  const auto never_done = [&] {
    waiting = true;
    waiting.notify_one();
    return false;
  };
  try {
    run_local_world(2, [&](World& world) {
      if (world.rank().value == 1) {
        waiting.wait(false);
        throw std::runtime_error("the GPU fell off the bus");
      }
      std::vector<std::string> aborts;
      try {
        wait_for_device(never_done, two(kNever, aborts), world);
      } catch (const AbortedError& e) {
        heard = e.what();
      }
      EXPECT_EQ(aborts.size(), 2u);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "the GPU fell off the bus");
  }
  EXPECT_NE(heard.find("rank 1 aborted the job: the GPU fell off the bus"), std::string::npos) << heard;
}

// Counts its calls and does nothing else.
class Counting final : public DeviceCommunicator {
 public:
  Counting(int rank, std::vector<base::RankId> members)
      : DeviceCommunicator("counting", rank, std::move(members)) {}
  void all_reduce(void*, int64_t count, DType dtype, ReduceOp op, DeviceStream) override {
    count_call({.kind = CallKind::AllReduce, .dtype = dtype, .op = op, .count = count});
  }
  void all_gather(const void*, void*, int64_t count, DType dtype, DeviceStream) override {
    count_call({.kind = CallKind::AllGather, .dtype = dtype, .count = count});
  }
  void reduce_scatter(const void*, void*, int64_t, DType, ReduceOp, DeviceStream) override {}
  void all_to_all(const void*, void*, int64_t, DType, DeviceStream) override {}
  void all_to_all_v(const Exchange&, DType, DeviceStream) override {}
  void broadcast(void*, int64_t, DType, int, DeviceStream) override {}
  void send(const void*, int64_t count, DType dtype, int peer, DeviceStream) override {
    count_call({.kind = CallKind::Send, .dtype = dtype, .peer = peer, .count = count});
  }
  void recv(void*, int64_t count, DType dtype, int peer, DeviceStream) override {
    count_call({.kind = CallKind::Recv, .dtype = dtype, .peer = peer, .count = count});
  }
  void register_memory(void*, int64_t) override {}
  void check() override {}
  void abort(const std::string&) override {}
};

// The message of compare_calls on each rank after the calls made by `calls`; empty: none.
std::vector<std::string> compared(int ranks,
                                  const std::function<void(DeviceCommunicator&, int rank)>& calls) {
  std::vector<std::string> said(static_cast<size_t>(ranks));
  std::vector<base::RankId> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(r);
  run_local_world(ranks, [&](World& world) {
    const int me = world.rank().value;
    DeviceCommunicators made;
    if (me == 0) made.push_back(std::make_unique<Counting>(0, std::vector{base::RankId(0)}));
    made.push_back(std::make_unique<Counting>(me, all));
    made.push_back(std::make_unique<Counting>(me, all));
    calls(*made.back(), me);
    try {
      compare_calls(made, world);
    } catch (const MismatchError& e) {
      said[static_cast<size_t>(me)] = e.what();
    }
  });
  return said;
}

TEST(CompareCalls, MembersWithDifferentCallsAreFound) {
  const std::vector<std::string> good(3);
  const auto sum = [](DeviceCommunicator& c, int64_t count, DType dtype, ReduceOp op = ReduceOp::Sum) {
    c.all_reduce(nullptr, count, dtype, op, nullptr);
  };
  EXPECT_EQ(compared(3, [](auto&, int) {}), good);
  EXPECT_EQ(compared(3, [&](auto& c, int) { sum(c, 7, DType::F32), sum(c, 9, DType::BF16); }), good);
  using Calls = std::function<void(DeviceCommunicator&)>;
  for (const Calls& others :
       std::vector<Calls>{[&](auto& c) { sum(c, 8, DType::F32), sum(c, 9, DType::BF16); },
                          [&](auto& c) { sum(c, 7, DType::F64), sum(c, 9, DType::BF16); },
                          [&](auto& c) { sum(c, 7, DType::F32, ReduceOp::Max), sum(c, 9, DType::BF16); },
                          [&](auto& c) { sum(c, 9, DType::BF16), sum(c, 7, DType::F32); },
                          [&](auto& c) { sum(c, 7, DType::F32); },
                          [&](auto& c) {
                            c.all_gather(nullptr, nullptr, 7, DType::F32, nullptr), sum(c, 9, DType::BF16);
                          }}) {
    const std::vector<std::string> said = compared(3, [&](auto& c, int rank) {
      if (rank == 1) return others(c);
      sum(c, 7, DType::F32), sum(c, 9, DType::BF16);
    });
    EXPECT_NE(
        said[0].find("rank 0 on device communicator 'counting' [0,1,2]: rank 1 has made different calls"),
        std::string::npos)
        << said[0];
    EXPECT_NE(said[1].find("rank 0 has made different calls"), std::string::npos) << said[1];
    EXPECT_NE(said[2].find("rank 1 has made different calls"), std::string::npos) << said[2];
  }
}

TEST(CompareCalls, MessagesAreComparedByDirection) {
  const auto pipeline = [](int64_t second) {
    return compared(2, [=](DeviceCommunicator& c, int rank) {
      if (rank == 0) {
        c.send(nullptr, 5, DType::F32, 1, nullptr);
        c.send(nullptr, 6, DType::F32, 1, nullptr);
        c.recv(nullptr, 3, DType::F32, 1, nullptr);
      } else {
        c.recv(nullptr, 5, DType::F32, 0, nullptr);
        c.send(nullptr, 3, DType::F32, 0, nullptr);
        c.recv(nullptr, second, DType::F32, 0, nullptr);
      }
    });
  };
  EXPECT_EQ(pipeline(6), std::vector<std::string>(2));
  EXPECT_NE(pipeline(7)[0].find("rank 1 has made different calls"), std::string::npos);
}

TEST(DeviceCommunicators, WithoutTheBackendTheErrorSaysWhatToDo) {
  if (device_communication_available())
    GTEST_SKIP()
        << "this build has NCCL, so the message of one without it cannot be seen: run this test in a "
           "build without QUINTET_CUDA";
  run_local_world(1, [](World& world) {
    EXPECT_TRUE(make_device_communicators({}, world, 0).empty());
    try {
      make_device_communicators({{{base::RankId(0)}, "dp"}}, world, 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const base::UserError& e) {
      EXPECT_NE(std::string(e.what()).find("QUINTET_CUDA=ON"), std::string::npos) << e.what();
    }
  });
}

}  // namespace
}  // namespace quintet::comm
