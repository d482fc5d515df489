// The simulator and the executor run the same program and write the same trace format: on every stream of
// every rank, the same instructions in the same order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "comm/local.h"
#include "sim/simulate.h"
#include "sim/trace.h"
#include "train/loop_trace.h"
#include "train/rank.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using Order = std::map<std::string, std::vector<std::string>>;  // by stream

Order order_of(const observe::RankTrace& trace) {
  Order order;
  for (const observe::TraceRecord& r : trace.records()) {
    std::string what = r.name;
    for (const char* key : {"block", "micro_batch", "bytes"})
      if (const auto at = r.args.find(key); at != r.args.end())
        what += fmt::format(" {} {}", key, at->second);
    order[r.stream].push_back(what);
  }
  return order;
}

TEST(Order, SimulatedAndExecutedAreTheSameOnEveryStream) {
  const std::vector<std::string> plain = {"parallel.tp=1", "parallel.sequence_parallel=false"};
  const std::vector<std::vector<std::string>> layouts = {
      {},  // dp_shard 2 x tp 2
      {"parallel.zero=3", "parallel.prefetch=1"},
      {"parallel.dp_shard=1", "parallel.zero=0", "parallel.pp=2"},
      {"parallel.dp_shard=1", "parallel.zero=0", "parallel.pp=2", "parallel.schedule=zb-h1"},
      {"parallel.dp_shard=1", "parallel.zero=0", "parallel.cp=2", "parallel.cp_method=ring"},
      {"parallel.cp=2", "parallel.cp_method=ulysses"},
      {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=64", "parallel.ep=2"},
  };
  size_t events = 0;
  for (size_t l = 0; l < layouts.size(); ++l) {
    SCOPED_TRACE(::testing::PrintToString(layouts[l]));
    const test::SmallRun small;
    std::vector<std::string> sets = l < 2 ? std::vector<std::string>{} : plain;
    sets.insert(sets.end(), layouts[l].begin(), layouts[l].end());
    const config::Recipe recipe = small.recipe(sets);
    const train::RunData data = train::load_data(recipe);
    const auto ranks = static_cast<size_t>(recipe.parallel.world());
    std::vector<std::pair<program::Program, program::Expanded>> compiled(ranks);
    std::vector<observe::RankTrace> executed;
    for (size_t r = 0; r < ranks; ++r) executed.emplace_back(static_cast<int>(r));
    comm::run_local_world(static_cast<int>(ranks), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      const size_t r = world.rank().index();
      executed[r] = train::make_trace(rank, world.rank(), 1);
      rank.executor().trace_next(&executed[r], 0);
      rank.step(0, data.train);
      compiled[r] = {rank.compiled().program, rank.compiled().step};
    });
    sim::World world;
    for (const auto& [program, step] : compiled) world.ranks.push_back({&program, &step});
    const sim::Rates rates{
        .flops_per_s = 1e12, .memory_bytes_per_s = 1e11, .sent_bytes_per_s = 1e10, .latency_s = 1e-6};
    const std::vector<observe::RankTrace> simulated =
        sim::make_trace(sim::simulate(world, sim::by_rates(rates)), world);
    ASSERT_EQ(simulated.size(), ranks);
    for (size_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(order_of(simulated[r]), order_of(executed[r])) << "rank " << r;
      events += executed[r].events();
    }
  }
  EXPECT_GT(events, 1000u);
}

}  // namespace
}  // namespace quintet
