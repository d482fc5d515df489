#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "config/validate.h"
#include "program/support.h"
#include "program/text.h"

namespace quintet::program {
namespace {

using namespace testing;

// Every rank's program equals the one that it would compile alone, to the last wait.
TEST(CompileWorld, EqualsOneRankAfterAnother) {
  for (const testing::Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = small_recipe(layout.overrides);
    const auto world = compiler::compile_world(recipe, {.evaluate = true}, 2);
    ASSERT_EQ(world.size(), static_cast<size_t>(recipe.parallel.world()));
    const TextOptions expanded{.form = TextOptions::Form::Expanded};
    for (size_t r = 0; r < world.size(); ++r) {
      const auto alone =
          compiler::compile(recipe, {.rank = base::RankId(static_cast<int32_t>(r)), .evaluate = true});
      EXPECT_EQ(to_text(world[r].program, world[r].step, {.full = true}),
                to_text(alone.program, alone.step, {.full = true}));
      EXPECT_EQ(to_text(world[r].program, world[r].step, expanded),
                to_text(alone.program, alone.step, expanded));
      EXPECT_EQ(to_text(world[r].program, world[r].evaluate, expanded),
                to_text(alone.program, alone.evaluate, expanded));
    }
  }
}

// Steps of 4, 2 and 1 micro-batches in every layout: each verified alone and with the other stages, in one
// arena that is that of 4 alone, and one that ends before anything is updated.
TEST(CompileWorld, StepsOfSeveralSizesShareOneArena) {
  for (const testing::Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    Overrides overrides = layout.overrides;
    overrides.insert(overrides.end(), {"batch.accumulation=4", "run.steps=9", "model.moe.balance_loss=0",
                                       "model.moe.z_loss=0", "model.moe.balance_scope=micro_batch"});
    if (small_recipe(overrides).parallel.schedule == "interleaved")
      overrides.push_back("batch.accumulation=8");
    config::Recipe recipe = small_recipe(overrides);
    const int64_t plain = compiler::compile(recipe, {.evaluate = true}).program.arena_bytes;
    const int64_t unit = recipe.batch.micro * recipe.parallel.dp(), all = recipe.batch.accumulation;
    recipe.batch.ramp = {
        {{config::Length::Unit::Steps, 2}, unit * all / 4},
        {{config::Length::Unit::Sequences, 3.0 * static_cast<double>(unit * all)}, unit * all / 2}};
    if (all == 8) recipe.batch.ramp.erase(recipe.batch.ramp.begin());
    recipe.run.noise_scale_every = 2;
    recipe.run.noise_scale_batch = unit * all / 2;
    recipe = config::resolve(recipe);
    const compiler::Ranks classes = compiler::compile_classes(recipe, {.evaluate = true}, 2);
    for (const compiler::RankProgram& r : classes.program) {
      ASSERT_EQ(r.program.variants.size(), all == 8 ? 2u : 3u);
      EXPECT_TRUE(r.program.variants.back().measures);
      std::set<int> micros;
      for (const Call& call : r.program.variants[0].calls) micros.insert(call.micro);
      EXPECT_EQ(micros.size(), static_cast<size_t>(r.program.variants[0].micro_batches) + 1) << "and -1";
      const Call last = r.program.variants.back().calls.back();
      for (const Instr& instr : r.program.bodies[static_cast<size_t>(last.body)].instrs)
        EXPECT_FALSE(instr.op != nullptr && instr.op->gated) << to_text(r.program, instr, false);
    }
    // The most that a step of one of the sizes needs alone, with the same stages.
    int64_t most = plain;
    config::Recipe alone = small_recipe(overrides);
    if (alone.parallel.pp > 1) {
      alone.parallel.stages.assign(static_cast<size_t>(classes.pipeline.stages.count()), 0);
      for (int label = 1; label + 1 < classes.model.num_blocks; ++label)
        ++alone.parallel
              .stages[static_cast<size_t>(classes.pipeline.stages.of_block[static_cast<size_t>(label)])];
    }
    for (const program::StepVariant& v : classes.program[0].program.variants) {
      alone.batch.accumulation = v.micro_batches;
      alone.batch.global = unit * v.micro_batches;
      most = std::max(most, compiler::compile(alone, {.evaluate = true}).program.arena_bytes);
    }
    // Slots that any of the sizes holds at once have bytes of their own, which may leave gaps.
    EXPECT_GE(classes.program[0].program.arena_bytes, most);
    EXPECT_LE(static_cast<double>(classes.program[0].program.arena_bytes), 1.01 * static_cast<double>(most));
  }
}

}  // namespace
}  // namespace quintet::program
