// Copies of the ranks' states in other ranks' memory.
#include "train/peer_memory.h"

#include <cstring>
#include <random>

#include "comm/local.h"
#include "program/saved_bytes.h"
#include "support/small_recipe.h"
#include "train/checkpointer.h"
#include "train/run_data.h"
#include "train/run_state.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;
using test::tensors_of;
using train::PeerCopies;
using Sets = std::vector<std::string>;

config::Recipe peer_recipe(const Sets& sets) {
  return test::small_recipe({"precision.compute=\"bf16\"", "precision.master=\"split\"", "batch.global=8",
                             "run.steps=12", "run.threads=1", "optimizer.lr=1e-2", "optimizer.ema=0.9"},
                            sets);
}

data::Corpus peer_corpus() {
  std::mt19937 random(7);
  std::vector<int32_t> tokens(4000);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % 200);
  return data::Corpus::from_documents("test", 256, {tokens});
}

// Calls a function on every rank of a new world.
struct PeerRun {
  config::Recipe recipe;
  data::Corpus corpus = peer_corpus();

  void run(const std::function<void(comm::World&, train::Rank&, const train::RunData&)>& body) const {
    const train::RunData data = train::make_data(recipe, corpus);
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      body(world, rank, data);
    });
  }
  void save(train::Rank& rank, comm::World& world, const base::Path& folder, int64_t step) const {
    config::Recipe here = recipe;
    here.checkpoint.dir = folder.string();
    train::Checkpointer(
        rank, world, here,
        [&] {
          return to_json(
              train::RunState{.step = step, .schedule_steps = 10, .scalars = rank.scalar_states()});
        },
        [](const std::string&) {})
        .save(step);
  }
};

std::string run_text(const train::Rank& rank, int64_t step) {
  return to_json(train::RunState{.step = step, .schedule_steps = 10, .scalars = rank.scalar_states()}).dump();
}

// Ranks disappear after step 8, with their memory; the copies are of step 6. All go on from there, in a new
// world, and end with the bits of a run that lost nothing.
void expect_restored(const Sets& layout, const std::vector<int>& lost, int64_t distance = 1) {
  SCOPED_TRACE(layout.empty() ? "" : layout[0]);
  const test::TempFolder folder;
  const PeerRun run{.recipe = peer_recipe(layout)};
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
    for (int64_t step = 0; step < 10; ++step) rank.step(step, data.train);
    run.save(rank, world, folder / "whole", 10);
  });
  std::vector<PeerCopies> memory(static_cast<size_t>(run.recipe.parallel.world()));
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
    PeerCopies& copies = memory[static_cast<size_t>(world.rank().value)];
    train::PeerMemory peers(rank, world, copies, distance);
    for (int64_t step = 0; step < 8; ++step) {
      rank.step(step, data.train);
      if ((step + 1) % 3 == 0) peers.copy(step + 1, run_text(rank, step + 1));
    }
    peers.finish();
    EXPECT_LE(peers.bytes(), program::saved_bytes(rank.compiled().program)) << "as planned";
    EXPECT_GE(peers.bytes(), program::saved_bytes(rank.compiled().program) * 9 / 10) << "but for padding";
    EXPECT_EQ(copies.own[0].state.size() + copies.own[1].state.size(),
              2 * static_cast<size_t>(peers.bytes()));
  });
  for (const int r : lost) memory[static_cast<size_t>(r)] = {};
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
    train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], distance);
    const auto restored = peers.restore();
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->step, 6);
    const train::RunState state =
        train::parse_run_state(checkpoint::Json::parse(restored->run), "another rank's memory");
    EXPECT_EQ(state.step, 6);
    rank.set_scalar_states(state.scalars);
    for (int64_t step = 6; step < 10; ++step) {
      rank.step(step, data.train);
      if (step == 8) peers.copy(9, run_text(rank, 9));
    }
    peers.finish();
    const auto again = peers.restore();
    EXPECT_EQ(again->step, 9) << "the restored rank takes part in the next copies";
    rank.set_scalar_states(
        train::parse_run_state(checkpoint::Json::parse(again->run), "another rank's memory").scalars);
    rank.step(9, data.train);
    run.save(rank, world, folder / "restored", 10);
  });
  EXPECT_TRUE(tensors_of(folder / "whole") == tensors_of(folder / "restored"));
}

TEST(PeerMemory, ALostRankIsRestoredInEveryBit) {
  expect_restored({"parallel.dp_shard=4", "parallel.zero=3"}, {2});
  expect_restored({"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=1"}, {3});
  expect_restored({"parallel.tp=2", "parallel.pp=2"}, {0});
}

// Two machines of two ranks: a machine is lost, and the copies of its ranks are on the other one.
TEST(PeerMemory, ALostMachineIsRestored) {
  expect_restored({"parallel.dp_shard=4", "parallel.zero=2"}, {2, 3}, 2);
}

TEST(PeerMemory, NeighboursThatAreLostTogetherAreNotRestored) {
  const PeerRun run{.recipe = peer_recipe({"parallel.dp_shard=4", "parallel.zero=3"})};
  std::vector<PeerCopies> memory(4);
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
    train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
    rank.step(0, data.train);
    peers.copy(1, run_text(rank, 1));
    peers.finish();
  });
  memory[1] = memory[2] = {};  // rank 1's copy was on rank 2
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData&) {
    train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
    EXPECT_FALSE(peers.restore());
  });
}

// A loss while a copy is being made: the one before it is whole on all ranks.
TEST(PeerMemory, AnIncompleteCopyIsNotUsed) {
  const PeerRun run{.recipe = peer_recipe({"parallel.dp_shard=2", "parallel.zero=1"})};
  std::vector<PeerCopies> memory(2);
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
    train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
    for (int64_t step = 0; step < 4; ++step) {
      rank.step(step, data.train);
      if (step % 2 == 1) peers.copy(step + 1, run_text(rank, step + 1));
    }
    peers.finish();
  });
  for (PeerCopies::Copy& copy : memory[1].other)  // rank 1 has not received all of rank 0's copy of step 4
    if (copy.step == 4) copy.step = -1;
  memory[0] = {};
  run.run([&](comm::World& world, train::Rank& rank, const train::RunData&) {
    train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
    EXPECT_EQ(peers.restore()->step, 2);
  });
}

// A copy that is not what its owner had is not there: an older one is used, or the one that another rank has.
TEST(PeerMemory, ADamagedCopyIsNotUsed) {
  const PeerRun run{.recipe = peer_recipe({"parallel.dp_shard=2", "parallel.zero=1"})};
  const auto damage = [](PeerCopies::Copy* copies) {
    PeerCopies::Copy& newest = copies[copies[0].step > copies[1].step ? 0 : 1];
    EXPECT_EQ(newest.step, 4);
    newest.state[newest.state.size() / 2] ^= std::byte{1};
  };
  for (const bool is_lost : {true, false}) {
    std::vector<PeerCopies> memory(2);
    run.run([&](comm::World& world, train::Rank& rank, const train::RunData& data) {
      train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
      for (int64_t step = 0; step < 4; ++step) {
        rank.step(step, data.train);
        if (step % 2 == 1) peers.copy(step + 1, run_text(rank, step + 1));
      }
      peers.finish();
    });
    damage(is_lost ? memory[1].other : memory[0].own);
    if (is_lost) memory[0] = {};
    run.run([&](comm::World& world, train::Rank& rank, const train::RunData&) {
      train::PeerMemory peers(rank, world, memory[static_cast<size_t>(world.rank().value)], 1);
      EXPECT_EQ(peers.restore()->step, is_lost ? 2 : 4);
    });
  }
}

// Copies change nothing about a run, and are planned.
TEST(PeerMemory, ARunWithCopiesHasTheBitsOfOneWithout) {
  const SmallRun with, without;
  with.train({"checkpoint.peer_every=2", "checkpoint.every=3"});
  without.train({"checkpoint.every=3"});
  EXPECT_TRUE(tensors_of(with.run_dir()) == tensors_of(without.run_dir()));
}

}  // namespace
}  // namespace quintet
