// Optional passes save time or memory and never change results: a layout without one computes what one rank
// with all of them computes, and every pass has an effect to leave out.
#include <algorithm>
#include <set>

#include "compiler/compile.h"
#include "config/names.h"
#include "equivalence/checks.h"
#include "program/text.h"

namespace quintet::tests {
namespace {

using config::OptionalPass;
using config::Recipe;

// Between them they have work for every pass: recomputed norms and SwiGLUs, sums behind messages, split
// backward passes with slots, rows of experts.
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
  experts.model.moe.experts = 4;
  experts.model.moe.top_k = 2;
  experts.model.moe.ffn = 16;
  experts.parallel.dp_shard = 2;
  experts.parallel.zero = 1;
  experts.parallel.ep = 2;
  return {resolved(dense, 2, 2), resolved(sharded, 1, 2), resolved(pipeline, 1, 4), resolved(experts, 1, 2)};
}

Recipe without(Recipe recipe, std::vector<OptionalPass> passes) {
  recipe.debug.disable_passes = std::move(passes);
  return recipe;
}

std::string program_of(const Recipe& recipe) {
  const compiler::Compiled c = compiler::compile(recipe, {});
  return program::to_text(c.program, c.step, {.full = true});
}

TEST(DisablePass, ResultsStayTheSame) {
  std::set<OptionalPass> effective;
  std::vector<OptionalPass> all;
  for (const auto& [pass, name] : config::Names<OptionalPass>::kTable) all.push_back(pass);
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(tools::describe(recipe.parallel));
    const std::string usual = program_of(recipe);
    const data::Dataset dataset = tools::training_data(recipe, true);
    const tools::LayoutRun one = run(tools::on_one_rank(recipe), dataset);
    const auto expect_same_results = [&](const std::vector<OptionalPass>& passes) {
      const Recipe plain = without(recipe, passes);
      const tools::VerifyResult result = tools::compare(plain, run(plain, dataset), one);
      EXPECT_TRUE(result.pass()) << tools::to_table(result);
    };
    for (const OptionalPass pass : all) {
      SCOPED_TRACE(config::name_of(pass));
      if (program_of(without(recipe, {pass})) == usual) continue;
      effective.insert(pass);
      expect_same_results({pass});
    }
    SCOPED_TRACE("all");
    expect_same_results(all);
  }
  for (const OptionalPass pass : all)
    EXPECT_TRUE(effective.contains(pass)) << config::name_of(pass) << " changes no program here";
}

// Without sharing, no byte of the arena belongs to two transient buffers.
TEST(DisablePass, ShareMemoryGivesEveryBufferItsOwnBytes) {
  for (const Recipe& recipe : recipes()) {
    const auto overlaps = [](const Recipe& r) {
      std::vector<const program::Buffer*> placed;
      const compiler::Compiled c = compiler::compile(r, {});
      for (const program::Buffer& b : c.program.buffers)
        if (b.offset >= 0 && b.bytes > 0) placed.push_back(&b);
      std::sort(placed.begin(), placed.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
      int64_t count = 0;
      for (size_t i = 1; i < placed.size(); ++i)
        count += placed[i]->offset < placed[i - 1]->offset + placed[i - 1]->bytes;
      return count;
    };
    EXPECT_GT(overlaps(recipe), 0);
    EXPECT_EQ(overlaps(without(recipe, {OptionalPass::ShareMemory})), 0);
  }
}

}  // namespace
}  // namespace quintet::tests
