// Dropless experts: the bytes that a step touches follow from the recorded counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "comm/local.h"
#include "train/expert_report.h"
#include "train/rank.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

// For each arena byte above the persistent ones: whether a step writes it when `rows` rows reach this rank's
// experts of a block.
std::vector<char> planned(const program::Program& p, const std::function<int64_t(int block)>& rows) {
  std::vector<char> touched(static_cast<size_t>(p.arena_bytes - p.persistent_bytes), 0);
  for (const program::Call& call : p.calls)
    for (const program::Instr& i : p.bodies[static_cast<size_t>(call.body)].instrs) {
      if (!program::takes_part(i, call)) continue;
      for (const program::Operand& o : i.out) {
        const program::Buffer& b = p.buffer(o.buffer);
        if (b.scope == program::Scope::Persistent) continue;
        int64_t bytes = o.bytes();
        const bool routed = o.type.num_dims() > 0 && o.type.dims[0].name == graph::Dim::Routed;
        if (routed && o.type.size(0) > 0)
          bytes = bytes / o.type.size(0) * std::min(o.type.size(0), rows(i.block));
        const int64_t first = b.offset + o.offset_bytes - p.persistent_bytes;
        std::fill(touched.begin() + first, touched.begin() + first + bytes, 1);
      }
    }
  return touched;
}

TEST(ExpertBytes, TouchedFollowFromRecordedCounts) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.ep=4"}, {"parallel.ep=4", "memory.recompute=full"}}) {
    const test::SmallRun small;
    std::vector<std::string> sets = {
        "model.moe.experts=8", "model.moe.top_k=2",  "model.moe.ffn=256",
        "model.ffn=256",       "parallel.tp=1",      "parallel.sequence_parallel=false",
        "parallel.dp_shard=4", "parallel.zero=1",    "batch.micro=2",
        "batch.global=8",      "optimizer.lr=1e-30", "run.steps=2"};
    sets.insert(sets.end(), layout.begin(), layout.end());
    const config::Recipe recipe = small.recipe(sets);
    const train::RunData data = train::load_data(recipe);
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      const program::Program& p = rank.compiled().program;
      rank.step(0, data.train);
      rank.step(0, data.train);
      const int64_t experts = recipe.model.moe.experts / recipe.parallel.ep,
                    mine = world.rank().value * experts;
      std::vector<char> seen(static_cast<size_t>(p.arena_bytes - p.persistent_bytes), 0);
      for (const int round : {0, 1}) {
        rank.executor().begin_measuring(round);
        rank.step(0, data.train);
        const program::BufferId any(0);
        const exec::HostBytes now = rank.executor().read(
            {any, p.persistent_bytes - p.buffer(any).offset, p.arena_bytes - p.persistent_bytes});
        for (size_t k = 0; k < seen.size(); ++k)
          seen[k] |= static_cast<unsigned char>(now.data()[k]) != exec::kMeasurePatterns[round];
      }
      const std::vector<train::ExpertUse> uses = train::expert_uses(rank.step_sums(), recipe);
      const auto rows = [&](int label) {
        int64_t sum = 0;
        for (const train::ExpertUse& use : uses)
          if (use.block + 1 == label)
            for (int64_t e = mine; e < mine + experts; ++e) sum += use.load[static_cast<size_t>(e)];
        return sum;
      };
      const std::vector<char> want = planned(p, rows),
                              most = planned(p, [](int) { return int64_t{1} << 40; });
      const auto count = [](const std::vector<char>& v) { return std::count(v.begin(), v.end(), 1); };
      EXPECT_EQ(count(seen), count(want)) << "rank " << world.rank().value << " of " << count(most);
      EXPECT_TRUE(seen == want) << "rank " << world.rank().value;
      EXPECT_LT(count(want), count(most));
    });
  }
}

}  // namespace
}  // namespace quintet
