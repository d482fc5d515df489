// Optional passes save time or memory and never change results: a layout without one computes what one rank
// with all of them computes, and every pass has an effect to leave out.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "compiler/compile.h"
#include "equivalence/checks.h"
#include "program/text.h"

namespace quintet::tests {
namespace {

using compiler::DisabledPasses;
using compiler::OptionalPass;
using config::Recipe;

// Between them they have work for every pass: recomputed norms and SwiGLUs, sums of tensor-parallel partial
// results, gathered parameters, a split backward pass with slots, rows of experts.
std::vector<Recipe> recipes() {
  Recipe dense = small_recipe();
  dense.memory.recompute = config::RecomputeKind::Selective;
  Recipe sharded = small_recipe();
  sharded.model.family = config::Family::Gpt2;
  sharded.model.kv_heads = 4;
  sharded.model.max_positions = 8;
  sharded.model.dropout = 0.1;
  sharded.parallel.dp_shard = 2;
  sharded.parallel.zero = 3;
  sharded.parallel.tp = 2;
  sharded.parallel.sequence_parallel = true;
  sharded.memory.recompute = config::RecomputeKind::Full;
  Recipe pipeline = small_recipe();
  pipeline.parallel.pp = 2;
  pipeline.parallel.schedule = "zb-h1";
  pipeline.parallel.tp = 2;
  Recipe experts = small_recipe();
  experts.model.ffn = 0;  // every block has experts
  experts.model.moe.experts = 4;
  experts.model.moe.top_k = 2;
  experts.model.moe.ffn = 16;
  experts.parallel.dp_shard = 2;
  experts.parallel.zero = 1;
  experts.parallel.ep = 2;
  return {resolved(dense, 2, 2), resolved(sharded, 1, 2), resolved(pipeline, 1, 4), resolved(experts, 1, 2)};
}

DisabledPasses all_passes() {
  const auto list = compiler::optional_passes();
  return {list.begin(), list.end()};
}

std::string program_of(const Recipe& recipe, const DisabledPasses& disabled) {
  const compiler::Compiled c = compiler::compile(recipe, {.disabled = disabled});
  return program::to_text(c.program, c.step, {.full = true});
}

TEST(DisablePass, ResultsAreThoseOfOneRank) {
  DisabledPasses effective;
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(tools::describe(recipe.parallel));
    const std::string usual = program_of(recipe, {});
    const data::Dataset dataset = tools::training_data(recipe, true);
    const Recipe single = tools::on_one_rank(recipe);
    const tools::LayoutRun one = run(single, dataset);
    const auto expect_same_results = [&](const DisabledPasses& disabled) {
      SCOPED_TRACE(to_string(disabled));
      const tools::VerifyResult result =
          tools::compare(recipe,
                         tools::run_layout(recipe, tools::training_batches(recipe, dataset),
                                           {.steps = 2, .disabled_passes = disabled}),
                         one);
      EXPECT_TRUE(result.pass()) << tools::to_table(result);
    };
    for (const OptionalPass pass : compiler::optional_passes()) {
      if (program_of(recipe, {pass}) == usual) continue;
      effective.insert(pass);
      expect_same_results({pass});
    }
    expect_same_results(all_passes());
  }
  EXPECT_EQ(effective, all_passes()) << "the others change no program here";
}

// Without sharing, no byte of the arena belongs to two buffers.
TEST(DisablePass, WithoutSharingEveryBufferHasItsOwnBytes) {
  const auto overlaps = [](const Recipe& recipe, const DisabledPasses& disabled) {
    const compiler::Compiled c = compiler::compile(recipe, {.disabled = disabled});
    std::vector<const program::Buffer*> placed;
    for (const program::Buffer& b : c.program.buffers)
      if (b.offset >= 0 && b.bytes > 0) placed.push_back(&b);
    std::sort(placed.begin(), placed.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    int64_t count = 0;
    for (size_t i = 1; i < placed.size(); ++i)
      count += placed[i]->offset < placed[i - 1]->offset + placed[i - 1]->bytes;
    return count;
  };
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(tools::describe(recipe.parallel));
    EXPECT_GT(overlaps(recipe, {}), 0);
    EXPECT_EQ(overlaps(recipe, {OptionalPass::ShareMemory}), 0);
  }
}

TEST(DisablePass, UnknownNamesListTheLegalOnes) {
  for (const OptionalPass pass : compiler::optional_passes())
    EXPECT_EQ(compiler::parse_optional_pass(to_string(pass)), pass);
  for (const char* name : {"in_place", "partition", "Fold", ""}) try {
      compiler::parse_optional_pass(name);
      FAIL() << name;
    } catch (const base::UserError& e) {
      EXPECT_NE(std::string(e.what()).find("recompute, fold, pack, overlap, fuse_adds, share_memory"),
                std::string::npos)
          << e.what();
    }
}

}  // namespace
}  // namespace quintet::tests
