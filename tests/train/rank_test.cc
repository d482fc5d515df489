#include "train/rank.h"

#include <cmath>
#include <cstring>

#include "comm/local.h"
#include "train/element.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;

// The error of check_replicas after rank `sick` changed one element of a parameter; empty if none.
std::string replicas_after_damage(const config::Recipe& recipe, int sick, const std::string& parameter) {
  try {
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      rank.check_replicas();
      if (world.rank().value == sick)
        rank.visit(program::holds_weights, [&](const train::Rank::Piece& piece, const layout::GlobalIndex&) {
          if (piece.segment->name != parameter) return;
          const exec::HostBytes held = rank.read(piece);
          rank.write(piece, [&](std::byte* data) {
            std::memmove(data, held.data(), static_cast<size_t>(piece.bytes()));
            const double value = train::read_element(data, piece.dtype, 0);
            train::write_element(data, piece.dtype, 0, value + 1e-3);
          });
        });
      rank.check_replicas();
    });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Replicas, ADamagedCopyIsFoundAndItsRanksNamed) {
  const SmallRun small;
  const config::Recipe copies =
      small.recipe({"parallel.dp_replicate=2", "parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=2"});
  EXPECT_CONTAINS(replicas_after_damage(copies, 3, "embed.weight"), "ranks 1 and 3");
  EXPECT_CONTAINS(replicas_after_damage(copies, 3, "embed.weight"), "dp_replicate");
  // Norm weights are replicated on every tensor-parallel rank.
  EXPECT_CONTAINS(replicas_after_damage(small.recipe(), 1, "final_norm.weight"), "ranks 0 and 1");
  // The tied table of the first and the last pipeline stage.
  const config::Recipe tied =
      small.recipe({"parallel.pp=2", "parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1",
                    "parallel.sequence_parallel=false", "model.tied=true"});
  EXPECT_CONTAINS(replicas_after_damage(tied, 1, "embed.weight"), "ranks 0 and 1");
  EXPECT_CONTAINS(replicas_after_damage(tied, 1, "embed.weight"), "shared by pipeline stages");
  // Shards have no copies.
  EXPECT_EQ(replicas_after_damage(small.recipe(), 1, "embed.weight"), "");
}

TEST(Replicas, ADamagedBiasIsFound) {
  const SmallRun small;
  const config::Recipe recipe = small.recipe({"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=16",
                                              "model.ffn=16", "model.moe.bias_rate=0.01"});
  std::string message;
  try {
    comm::run_local_world(4, [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      rank.check_replicas();
      ASSERT_EQ(rank.states().size(), 2u);
      const train::Rank::State state = rank.states()[1];
      if (world.rank().value == 2)
        rank.write(state.range, [&](std::byte* data) {
          for (int64_t i = 0; i < state.count; ++i)
            train::write_element(data, state.dtype, i, i == 3 ? 0.5 : 0.0);
        });
      rank.check_replicas();
    });
  } catch (const std::exception& e) {
    message = e.what();
  }
  EXPECT_CONTAINS(message, "the router biases shared by ranks 0 and 2 differ");
}

// Why a schedule with forwards in another order is refused with the global balance loss
// (compiler/pipeline_schedule.cc): a micro-batch is balanced against the loads of those before it, so the
// order changes the gradients. With the other scopes it does not.
TEST(Rank, OnlyTheGlobalBalanceLossDependsOnTheOrderOfMicroBatches) {
  for (const std::string scope : {"micro_batch", "sequence", "global"}) {
    SCOPED_TRACE(scope);
    const SmallRun small;
    std::vector<std::string> sets = test::kOneRank;
    for (const char* set : {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=16", "model.ffn=16",
                            "model.moe.balance_loss=0.5", "precision.compute=f64"})
      sets.emplace_back(set);
    sets.push_back("model.moe.balance_scope=" + scope);
    const config::Recipe recipe = small.recipe(sets);
    const train::RunData data = train::load_data(recipe);
    const auto norm = [&](const std::vector<int>& order) {
      double found = 0;
      comm::run_local_world(1, [&](comm::World& world) {
        train::Rank rank(recipe, world, {});
        const exec::LoadBatch load = rank.load_of(0, data.train);
        const auto reordered = [&](int micro, const auto& inputs) {
          load(order[static_cast<size_t>(micro)], inputs);
        };
        found = rank.step_with(0, reordered, data.train.count_labels(0, 0)).grad_norm;
      });
      return found;
    };
    const double straight = norm({0, 1, 2, 3}), reversed = norm({3, 2, 1, 0});
    if (scope == "global")
      EXPECT_GT(std::abs(straight - reversed), 1e-5 * straight);
    else
      EXPECT_NEAR(straight, reversed, 1e-12 * straight);
  }
}

// What evaluation drops does not change from step to step, unlike what a step drops.
TEST(Rank, EvaluationDropsTheSameRandomRows) {
  const SmallRun small;
  std::vector<std::string> sets = test::kOneRank;
  for (const char* set : {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=16", "model.ffn=16",
                          "model.moe.capacity_factor=0.5", "model.moe.drop=random", "precision.compute=f64",
                          "optimizer.lr=1e-30", "optimizer.weight_decay=0", "model.moe.jitter=0.2"})
    sets.emplace_back(set);
  const config::Recipe recipe = small.recipe(sets);
  const train::RunData data = train::load_data(recipe);
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {.evaluate = true});
    const auto evaluate = [&] { return rank.evaluate(data.train, 0, 1).loss_sum; };
    const double before = evaluate();
    const double first = rank.step(0, data.train).loss;
    const double after = evaluate();
    const double second = rank.step_with(1, rank.load_of(0, data.train), data.train.count_labels(0, 0)).loss;
    EXPECT_EQ(before, after);
    EXPECT_EQ(before, evaluate());
    EXPECT_NE(first, second) << "every step draws other numbers";
  });
}

TEST(Rank, WaitsLongerUntilTheFirstStepHasEnded) {
  using std::chrono::seconds;
  const SmallRun small;
  const auto timeouts = [&](std::vector<std::string> more) {
    std::vector<std::string> sets = test::kOneRank;
    sets.insert(sets.end(), more.begin(), more.end());
    const config::Recipe recipe = small.recipe(sets);
    const train::RunData data = train::load_data(recipe);
    std::vector<std::chrono::nanoseconds> seen;
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      seen.push_back(world.timeout());
      for (int64_t step = 0; step < 2; ++step) {
        rank.step_with(step, rank.load_of(step, data.train), data.train.count_labels(step, 0));
        seen.push_back(world.timeout());
      }
    });
    return seen;
  };
  using Seen = std::vector<std::chrono::nanoseconds>;
  EXPECT_EQ(timeouts({"run.timeout=33", "run.setup_timeout=77"}),
            (Seen{seconds(77), seconds(33), seconds(33)}));
  EXPECT_EQ(timeouts({"run.timeout=33"}), (Seen{seconds(33), seconds(33), seconds(33)}));
}

}  // namespace
}  // namespace quintet
