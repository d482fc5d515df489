// What saving and loading may use: bytes per second of the file system, and memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "support/memory_peak.h"
#include "train/checkpoint_support.h"

namespace quintet {
namespace {

using test::recipe_of;
using test::Sets;

// Time that passes only where a writer sleeps, so that all of it is what checkpoint.bandwidth costs.
struct SleptTime {
  double seconds = 0;
  std::function<void()> on_sleep;

  checkpoint::RateLimit::Clock clock() {
    return {.now_ns = [this] { return static_cast<int64_t>(seconds * 1e9); },
            .sleep =
                [this](double more) {
                  seconds += more;
                  if (on_sleep) on_sleep();
                }};
  }
};

// A writer that keeps a rate sleeps for as long as all of its bytes take.
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
    std::vector<SleptTime> slept(2);
    test::QuickFiles files;
    comm::run_local_world(2, [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      train::Checkpointer checkpoints(
          rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files);
      checkpoints.set_rate_clock(slept[static_cast<size_t>(world.rank().value)].clock());
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
      const double passed = slept[r].seconds * kBandwidth / 2;
      EXPECT_LE(passed, static_cast<double>(bytes) + 1);
      EXPECT_GE(passed, static_cast<double>(bytes - headers) - 1);
      EXPECT_GT(bytes - headers, 10'000);
    }
  }
}

// Before the process ends there is no time for checkpoint.bandwidth: not in a save that begins then, nor in
// one that was sleeping for it.
TEST(SaveCosts, ASaveBeforeTheEndIgnoresTheBandwidth) {
  enum class Ends : uint8_t { No, Before, Within, BySignal, JobEnds, JobEndsLater };
  for (const bool staged : {true, false})
    for (const Ends ends :
         {Ends::No, Ends::Before, Ends::Within, Ends::BySignal, Ends::JobEnds, Ends::JobEndsLater}) {
      SCOPED_TRACE(fmt::format("{} {}", staged, static_cast<int>(ends)));
      const test::TempFolder folder;
      Sets sets = {"parallel.dp_shard=2", "parallel.zero=1", "checkpoint.bandwidth=\"1kB\""};
      if (staged) sets.emplace_back("checkpoint.every=2");
      config::Recipe recipe = recipe_of(sets);
      recipe.checkpoint.dir = folder.path().string();
      std::vector<SleptTime> slept(2);
      test::QuickFiles files;
      comm::run_local_world(2, [&](comm::World& world) {
        train::Rank rank(recipe, world, {});
        train::Checkpointer checkpoints(
            rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files);
        SleptTime& mine = slept[static_cast<size_t>(world.rank().value)];
        checkpoints.set_rate_clock(mine.clock());
        if (ends == Ends::Before) checkpoints.hurry();
        if (ends == Ends::Within) mine.on_sleep = [&] { checkpoints.hurry(); };
        if (ends == Ends::BySignal) checkpoints.set_ending([&] { return mine.seconds > 0; });
        if (ends == Ends::JobEnds && world.rank().value == 0)
          checkpoints.set_deadline(base::wall_seconds() + 20);
        // Time for a save, but not for one within the bandwidth.
        if (ends == Ends::JobEndsLater && world.rank().value == 0)
          checkpoints.set_deadline(base::wall_seconds() + 60);
        train::Checkpointer::Flags flags = checkpoints.flags(0);
        EXPECT_EQ(flags.due, ends == Ends::JobEnds && world.rank().value == 0);
        world.world().all_reduce(&flags.ending, 1, base::DType::I32, comm::ReduceOp::Max);
        checkpoints.advance(flags);
        EXPECT_EQ(checkpoints.save_last(2, train::Checkpointer::Older::Prune, {}).failures, "");
      });
      const double capped =
          static_cast<double>(
              checkpoint::Reader(checkpoint::Store(folder.path()).folder_of(2)).manifest().tensor_bytes()) /
          1e3;
      ASSERT_GT(capped, 100);
      for (const SleptTime& rank : slept) {
        if (ends == Ends::No)
          EXPECT_GT(rank.seconds, 0.9 * capped);
        else if (ends == Ends::Within || ends == Ends::BySignal)
          EXPECT_NEAR(rank.seconds, checkpoint::RateLimit::kMostSlept, 1e-6);
        else
          EXPECT_EQ(rank.seconds, 0);
      }
    }
}

// How long a stop takes and how early a job's last save is made follow from the time of the last save
// without what it slept for checkpoint.bandwidth.
TEST(SaveCosts, ASaveIsExpectedToTakeAsLongAsTheLastOneWithoutItsBandwidth) {
  static constexpr auto kFlush = std::chrono::milliseconds(400);
  class SlowFiles : public test::QuickFiles {
    void sync(int, const base::Path&) override { std::this_thread::sleep_for(kFlush); }
  } files;
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"parallel.dp_shard=2", "checkpoint.bandwidth=\"1kB\""});
  recipe.checkpoint.dir = folder.path().string();
  comm::run_local_world(2, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files);
    std::atomic<int64_t> slept_ns = 0;
    checkpoints.set_rate_clock(
        {.now_ns = [&] { return base::now_ns() + slept_ns; },
         .sleep = [&](double seconds) { slept_ns += static_cast<int64_t>(seconds * 1e9); }});
    EXPECT_LT(checkpoints.last_save_seconds(), 0.1) << "from its size";
    const int64_t begin = base::now_ns();
    world.world().barrier();  // no rank's save began before that
    checkpoints.save(1);
    const double most = static_cast<double>(base::now_ns() - begin) / 1e9;
    EXPECT_GT(slept_ns, 100'000'000'000);
    if (world.rank().value == 0) {
      EXPECT_GE(checkpoints.last_save_seconds(), 1.2) << "flushes a shard, the manifest and its pointer";
      EXPECT_LE(checkpoints.last_save_seconds(), most);
    }
  });
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
