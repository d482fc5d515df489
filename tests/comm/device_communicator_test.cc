// What can be said about communication between GPUs without one: how a rank waits, and what it is told where
// the backend cannot work. The calls themselves are tested by tests/gpu/nccl.
#include "comm/device_communicator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/local.h"

namespace quintet::comm {
namespace {

using base::DType;

// Knows only how to fail and to be aborted.
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
  // At the first look, and at the last, after the work is done.
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

TEST(WaitForDevice, TheTimeoutAbortsAllAndTellsTheLastCalls) {
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

TEST(DeviceCommunicators, WithoutTheBackendTheUserIsToldWhatToDo) {
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
