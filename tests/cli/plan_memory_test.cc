// The arena that quintet plan reports for a GPU equals the one that the executor allocates, in builds with
// and without CUDA.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "compiler/compile.h"
#include "config/parse.h"
#include "exec/executor.h"
#include "support/folders.h"

namespace quintet::test {
namespace {

struct Case {
  std::string file, cluster;
  std::vector<std::string> sets;
};

const std::vector<Case> kCases = {
    {"bench/gpu/1b.toml", "1x1 h200", {"model.layers=2"}},
    {"bench/gpu/125m.toml",
     "1x4 h100",
     {"model.layers=2", "run.deterministic=true", "parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2",
      "batch.micro=1", "eval.every=10", "data.validation_fraction=0.05"}},
    {"bench/gpu/125m.toml",
     "1x4 b200",
     {"model.layers=2", "data.pack=true", "parallel.cp=2", "parallel.pp=2", "batch.micro=1"}},
    {"recipes/tiny-moe.toml", "1x4 h200", {"run.device=cuda"}},
    {"recipes/tiny-moe.toml", "1x4 mi300x", {"run.device=cuda", "precision.compute=bf16"}}};

TEST(PlanVerb, ArenaMatchesTheCudaExecutor) {
  for (const Case& c : kCases) {
    const std::string path = test::source_dir() + "/" + c.file;
    SCOPED_TRACE(c.file + " on " + c.cluster);
    std::string command = "plan " + quoted(path) + " --json --cluster " + quoted(c.cluster);
    for (const std::string& set : c.sets) command += " --set " + quoted(set);
    const Outcome planned = quintet(command);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const auto ranks = nlohmann::json::parse(planned.out).at("memory").at("ranks");

    const config::Recipe recipe = config::parse(base::read_file(path), c.sets);
    ASSERT_EQ(recipe.run.device, config::DeviceKind::Cuda);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(recipe.parallel.pp));
    for (const auto& rank : ranks) {
      compiler::CompileOptions options;
      options.rank = base::RankId(rank.at("rank").get<int32_t>());
      options.evaluate = recipe.eval.every > 0;
      options.workspace_bytes = exec::workspace_of(exec::Device::Cuda, 1);
      const compiler::Compiled compiled = compiler::compile(recipe, options);
      EXPECT_EQ(rank.at("arena_bytes").get<int64_t>(), compiled.program.arena_bytes);
      EXPECT_GE(compiled.program.buffer(compiled.program.workspace).bytes, 32 << 20);
    }
  }
}

}  // namespace
}  // namespace quintet::test
