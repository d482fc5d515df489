// What saving and loading may use: bytes per second of the file system, and memory.
#include <gtest/gtest.h>

#include <atomic>

#include "support/memory_peak.h"
#include "train/checkpoint_support.h"

namespace quintet {
namespace {

using test::recipe_of;
using test::Sets;

// With a clock that stands still, a writer that keeps a rate waits for all that it has written: after the
// last block for as long as all of its bytes take.
TEST(SaveCosts, EveryByteOfARankPassesItsShareOfTheBandwidth) {
  constexpr double kBandwidth = 1e6;
  for (const bool staged : {true, false}) {
    SCOPED_TRACE(staged);
    const test::TempFolder folder;
    Sets sets = {"parallel.dp_shard=2", "parallel.zero=1", "checkpoint.bandwidth=\"1MB\"",
                 "optimizer.groups=[{match=\"*ffn*\", update=false}]"};
    if (staged) sets.emplace_back("checkpoint.every=2");
    config::Recipe recipe = recipe_of(sets);
    recipe.checkpoint.dir = folder.path().string();
    std::vector<double> waited(2);
    test::QuickFiles files;
    comm::run_local_world(2, [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      train::Checkpointer checkpoints(
          rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files);
      double& longest = waited[static_cast<size_t>(world.rank().value)];
      checkpoints.set_rate_clock({.now_ns = [] { return int64_t{0}; },
                                  .sleep = [&](double seconds) { longest = std::max(longest, seconds); }});
      checkpoints.save(2);
      checkpoints.finish();
    });
    const checkpoint::Reader reader(checkpoint::Store(folder.path()).folder_of(2));
    for (const size_t r : {0, 1}) {
      int64_t bytes = 0, headers = 0;  // of its shard, and of its frozen tensors
      for (const checkpoint::ShardFile& file : reader.manifest().files)
        if (file.name == checkpoint::shard_name(static_cast<int64_t>(r)) ||
            file.name == checkpoint::frozen_name(static_cast<int64_t>(r)))
          bytes += file.bytes, headers += file.header_bytes;
      const double passed = waited[r] * kBandwidth / 2;
      EXPECT_LE(passed, static_cast<double>(bytes) + 1);
      EXPECT_GE(passed, static_cast<double>(bytes - headers) - 1);
      EXPECT_GT(bytes - headers, 10'000);
    }
  }
}

// A rank that loads holds its share and five parts of 32 MiB at most, however large a tensor is: here one of
// 256 MiB, which four threads read and convert to f64.
TEST(SaveCosts, ALoadHoldsTheShareAndFiveParts) {
  if (!test::kMeasuresMemory) GTEST_SKIP() << "not with sanitizers";
  constexpr int64_t kMiB = int64_t{1} << 20, kSlack = 24 * kMiB;
  const test::TempFolder folder;
  const Sets sets = {"model.vocab=524288", "model.embed=128",        "model.layers=1",       "model.ffn=128",
                     "model.tied=true",    "optimizer.name=\"sgd\"", "optimizer.momentum=0", "batch.global=1",
                     "run.steps=8",        "run.threads=1"};
  const config::Recipe saves = test::small_recipe(sets),
                       loads = test::small_recipe(sets, {"precision.compute=\"f64\""});
  test::peak_of([&](test::PeakMeter&) { test::run_steps(saves, test::corpus(), folder.path(), 0, 0, {}); });
  const base::Path saved = checkpoint::find_checkpoint(folder.path());
  const int64_t share = 2 * checkpoint::Reader(saved).manifest().tensor_bytes();
  ASSERT_GE(share, 512 * kMiB);
  const int64_t peak = test::peak_of([&](test::PeakMeter& meter) {
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(loads, world, {.draw = false});  // its pages are not resident yet
      checkpoint::Reader reader(saved);
      meter.begin();
      train::load_state(rank, reader, train::LoadOptions{});
    });
  });
  RecordProperty("bytes_beyond_share", std::to_string(peak - share));
  EXPECT_GT(peak, share / 2);
  EXPECT_LT(peak, share + 5 * 32 * kMiB + kSlack);
}

}  // namespace
}  // namespace quintet
