// A found layout as a recipe that runs, and how --set restricts a search.
#include "search/emit_recipe.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/small_models.h"
#include "search/layout_space.h"

namespace quintet::search {
namespace {

using plan::testing::small_llama;

TEST(Emit, RunsOnTheClustersDevices) {
  const config::Recipe recipe = small_llama({"parallel.dp_replicate=8"});
  const EmittedRecipe gpu = emit_recipe(recipe, hardware::parse_cluster("2x8 h100"), true);
  const config::Recipe read = config::parse(gpu.text);
  EXPECT_EQ(read, gpu.recipe);
  EXPECT_EQ(read.run.device, config::DeviceKind::Cuda);
  EXPECT_EQ(read.parallel, recipe.parallel);
  // No data, and a number of steps used only for the plan: both are reported, in the file too.
  ASSERT_EQ(gpu.to_do.size(), 2u);
  EXPECT_TRUE(gpu.to_do[0].starts_with("data.path: "));
  EXPECT_TRUE(gpu.to_do[1].starts_with("run.steps = 1"));
  EXPECT_NE(gpu.text.find("# To do: data.path: "), std::string::npos) << gpu.text;
  EXPECT_NE(gpu.text.find("mpirun -np 8 quintet train"), std::string::npos) << gpu.text;
  // With a data path there is nothing left to fill in.
  const EmittedRecipe cpu = emit_recipe(small_llama({"parallel.dp_replicate=8", "data.path=[\"a.txt\"]"}),
                                        hardware::parse_cluster("1x8 cpu"), false);
  EXPECT_TRUE(cpu.to_do.empty());
  EXPECT_EQ(config::parse(cpu.text).data.path, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(cpu.recipe.run.device, config::DeviceKind::Cpu);
  EXPECT_NE(
      emit_recipe(recipe, hardware::parse_cluster("1x8 mi300x"), false).to_do.front().find("does not run on"),
      std::string::npos);
}

TEST(LayoutSpace, HoldsWhatIsSet) {
  const hardware::Cluster c = hardware::parse_cluster("2x8 h100");
  const LayoutSpace s = fixed(usual_space(small_llama(), c),
                              {"parallel.tp=2", "memory.recompute=full", "batch.micro=2",
                               "parallel.schedule=\"zb-h1\"", "data.seq_len=512", "parallel.cp_method=ring"});
  EXPECT_EQ(s.tp, std::vector<int64_t>{2});
  EXPECT_EQ(s.micro, std::vector<int64_t>{2});
  EXPECT_EQ(s.recompute, std::vector<config::RecomputeKind>{config::RecomputeKind::Full});
  EXPECT_EQ(s.schedules, std::vector<std::string>{"zb-h1"});
  EXPECT_EQ(s.methods, std::vector<config::ContextMethod>{config::ContextMethod::Ring});
  EXPECT_GT(s.pp.size(), 1u);
  EXPECT_THROW(fixed(s, {"parallel.dp_shard=4"}), base::UserError);
  EXPECT_THROW(fixed(s, {"parallel.tp=two"}), base::UserError);
  EXPECT_THROW(fixed(s, {"memory.recompute=much"}), base::UserError);
}

}  // namespace
}  // namespace quintet::search
