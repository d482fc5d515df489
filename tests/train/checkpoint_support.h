// Runs of a few steps in any layout, saved and loaded directly, for tests of checkpoints.
#pragma once

#include <map>
#include <random>

#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "support/small_recipe.h"
#include "train/checkpointer.h"
#include "train/run_data.h"
#include "train/run_state.h"
#include "train/saved_state.h"
#include "train/support.h"

namespace quintet::test {

using Sets = std::vector<std::string>;

inline Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline config::Recipe recipe_of(const Sets& sets) {
  return small_recipe({"precision.compute=\"f64\"", "batch.global=8", "run.steps=8", "run.threads=1",
                       "run.seed=5", "optimizer.lr=1e-2"},
                      sets);
}

inline data::Corpus corpus() {
  std::mt19937 random(7);
  std::vector<int32_t> tokens(4000);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % 200);
  return data::Corpus::from_documents("test", 256, {tokens});
}

// Nothing crashes here, and flushing takes long.
class QuickFiles : public base::FileSystem {
  void sync(int, const base::Path&) override {}
  void sync_directory(const base::Path&) override {}
};

// Runs steps [begin, end) in a layout, from a checkpoint unless begin is 0, and saves the state after it.
// Returns the loss of each step.
inline std::vector<double> run_steps(const config::Recipe& recipe, const data::Corpus& text,
                                     const base::Path& store, int64_t begin, int64_t end,
                                     const base::Path& from) {
  config::Recipe here = recipe;
  here.checkpoint.dir = store.string();
  const train::RunData data = train::make_data(here, text);
  std::vector<double> losses(static_cast<size_t>(end - begin));
  QuickFiles files;
  comm::run_local_world(static_cast<int>(here.parallel.world()), [&](comm::World& world) {
    train::Rank rank(here, world, {});
    if (!from.empty()) {
      checkpoint::Reader reader(from);
      const train::RunState state = train::parse_run_state(reader.manifest().run, "test");
      EXPECT_EQ(state.step, begin);
      train::load_state(rank, reader, train::LoadOptions{});
      rank.set_scalar_states(state.scalars);
    }
    for (int64_t step = begin; step < end; ++step) {
      const double loss = rank.step(step, data.train).loss;
      if (world.rank().value == 0) losses[static_cast<size_t>(step - begin)] = loss;
    }
    train::Checkpointer checkpoints(
        rank, world, here,
        [&] {
          return to_json(train::RunState{
              .step = end, .schedule_steps = 8, .scalars = rank.scalar_states(), .recipe = ""});
        },
        [](const std::string&) {}, files);
    checkpoints.save(end);
    checkpoints.finish();
  });
  return losses;
}

}  // namespace quintet::test
