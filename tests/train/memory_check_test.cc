#include "train/memory_check.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temp_folder.h"
#include "config/parse.h"
#include "support/small_recipe.h"
#include "train/loop.h"

namespace quintet::train {
namespace {

TEST(Fit, ALayoutFarTooLargeIsRefusedWithTheNumbers) {
  const config::Recipe recipe = config::parse(R"(
[model]
preset = "llama3-405b"
[data]
seq_len = 8192
[batch]
micro = 1
[parallel]
dp_shard = 128
zero = 3
tp = 8
sequence_parallel = true
[precision]
compute = "bf16"
[optimizer]
lr = 1e-4
[run]
steps = 1
)",
                                              {}, "test");
  const int64_t ranks = recipe.parallel.world();
  const std::string message = test::user_error([&] {
    require_memory(recipe, {}, 1, {int64_t{64} << 30, ranks});
  });
  for (const char* part : {"does not fit", "1024 ranks", "64.0 GiB is free", "memory.recompute"})
    EXPECT_CONTAINS(message, part);
  EXPECT_NO_THROW(require_memory(recipe, {}, 1, {0, ranks}));
  // With a GPU per rank, the number of ranks does not matter.
  EXPECT_NO_THROW(require_memory(recipe, {}, 1, {int64_t{1} << 40, 1}));
  EXPECT_THROW(require_memory(recipe, {}, 1, {int64_t{1} << 40, ranks}), base::UserError);
}

// What saving takes of the host's memory counts too, on a GPU beside what else is there.
TEST(Fit, CopiesOfTheStateCountAsHostMemory) {
  const auto check = [](const std::vector<std::string>& sets, int64_t host) {
    const config::Recipe recipe = test::small_recipe({"parallel.dp_shard=2", "parallel.zero=1"}, sets);
    return test::user_error([&] {
      require_memory(recipe, {}, 1, {int64_t{1} << 40, 1}, {}, {}, {host, 2});
      base::fail_user("fits");
    });
  };
  const std::vector<std::string> gpu = {"run.device=cuda", "checkpoint.every=10"};
  std::vector<std::string> peers = gpu;
  peers.push_back("checkpoint.peer_every=1");
  EXPECT_EQ(check(gpu, int64_t{1} << 30), "fits");
  EXPECT_EQ(check(peers, int64_t{1} << 30), "fits");
  EXPECT_CONTAINS(check(gpu, 100'000), "checkpoint.every = 0");
  EXPECT_EQ(check({"run.device=cuda"}, 100'000), "fits") << "the last state is written without a copy";
  EXPECT_CONTAINS(check(peers, 400'000), "for checkpoint.peer_every");
}

// On CPUs they are in the same memory as everything else.
TEST(Fit, CopiesOfTheStateCountOnCpusToo) {
  const auto check = [](const std::vector<std::string>& sets, int64_t bytes) {
    const config::Recipe recipe = test::small_recipe({"parallel.dp_shard=2", "parallel.zero=1"}, sets);
    return test::user_error([&] {
      require_memory(recipe, {}, 1, {bytes, 2});
      base::fail_user("fits");
    });
  };
  // The least memory in which a run without copies fits.
  int64_t too_little = 0, enough = int64_t{1} << 30;
  while (enough - too_little > 1) {
    const int64_t middle = (too_little + enough) / 2;
    (check({}, middle) == "fits" ? enough : too_little) = middle;
  }
  EXPECT_CONTAINS(check({}, too_little), "the run does not fit in memory");
  const std::string message = check({"checkpoint.every=10"}, enough);
  EXPECT_CONTAINS(message, "copies of the state do not fit in the host's memory: 2 ranks need");
  EXPECT_CONTAINS(message, "for training");
  EXPECT_EQ(check({"checkpoint.every=10"}, 2 * enough), "fits");
}

TEST(Cores, AreSharedUnlessALauncherHasAssignedThem) {
  EXPECT_EQ(share_of_cores(128, 128, 8), 16);
  EXPECT_EQ(share_of_cores(16, 128, 8), 16) << "bound by Slurm";
  EXPECT_EQ(share_of_cores(128, 128, 1), 128);
  EXPECT_EQ(share_of_cores(2, 2, 4), 1);
  EXPECT_EQ(share_of_cores(16, 4, 8), 2) << "a host has at least the cores of the process";
}

}  // namespace
}  // namespace quintet::train
