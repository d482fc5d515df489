// No bound may exceed the plan.
#include "search/bounds.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "compiler/compile.h"
#include "config/names.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/validate.h"
#include "plan/small_models.h"
#include "plan/time.h"
#include "search/layout_space.h"

namespace quintet::search {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_experts;
using plan::testing::small_llama;

constexpr int64_t kWorld = 8;

LayoutSpace small_space() {
  LayoutSpace s;
  s.pp = {1, 2, 4};
  s.cp = {1, 2};
  s.tp = {1, 2};
  s.ep = {1, 2, 4};
  s.etp = {1, 2};
  s.sequence_parallel = {1, 0};
  s.methods = {config::ContextMethod::Gather, config::ContextMethod::Ring, config::ContextMethod::Ulysses};
  s.micro = {1, 2};
  s.zero = {0, 1, 2, 3};
  s.recompute = {config::RecomputeKind::None, config::RecomputeKind::Selective, config::RecomputeKind::Full};
  for (const std::string_view name : config::pipeline_schedules()) s.schedules.emplace_back(name);
  s.chunks = {2};
  return s;
}

// Random layouts of the space, with a fixed seed, and their plans.
void expect_no_bound_exceeds(const config::Recipe& recipe, const plan::Assumptions& a, int draws, int seed,
                             const std::function<void(config::Recipe&, std::mt19937&)>& edit = {}) {
  const LayoutSpace space = small_space();
  const std::vector<config::Recipe> all = legal_recipes(recipe, space, kWorld);
  ASSERT_GT(all.size(), 100u);
  std::mt19937 rng(static_cast<unsigned>(seed));
  const Bounds bounds(a);
  double tightest_seconds = 0, tightest_bytes = 0, sum = 0;
  for (int i = 0; i < draws; ++i) {
    config::Recipe r = all[rng() % all.size()];
    if (edit) edit(r, rng);
    const plan::Report report = plan::make_plan(r, a);
    const int64_t planned = report.memory.ranks[report.memory.most_loaded].total();
    const Bound any = bounds.of_any_schedule(r), quick = bounds.quick(r), exact = bounds.exact(r);
    const double most = report.time.step * (1 + 1e-9);
    EXPECT_LE(any.seconds, most) << layout_words(r);
    EXPECT_LE(quick.seconds, most) << layout_words(r);
    EXPECT_LE(exact.seconds, most) << layout_words(r);
    EXPECT_LE(any.bytes, planned) << layout_words(r);
    EXPECT_LE(quick.bytes, planned) << layout_words(r);
    EXPECT_LE(exact.bytes, planned) << layout_words(r);
    EXPECT_LE(quick.seconds, exact.seconds * (1 + 1e-9)) << layout_words(r);
    tightest_seconds = std::max(tightest_seconds, exact.seconds / report.time.step);
    tightest_bytes =
        std::max(tightest_bytes, static_cast<double>(exact.bytes) / static_cast<double>(planned));
    sum += exact.seconds / report.time.step;
  }
  // A bound of zero would pass the above.
  EXPECT_GT(tightest_seconds, 0.9);
  EXPECT_GT(tightest_bytes, 0.8);
  EXPECT_GT(sum / draws, 0.6);
}

TEST(Bounds, DenseModel) { expect_no_bound_exceeds(small_llama(), small_cluster(), 300, 1); }

TEST(Bounds, Experts) { expect_no_bound_exceeds(small_experts(), small_cluster(), 200, 2); }

// Attention without tensor cores, everywhere or only in hops.
TEST(Bounds, SlowAttention) {
  plan::Assumptions a = small_cluster();
  a.remark = [](const program::Instr& i) {
    return i.kind == program::InstrKind::Compute && sim::class_of(*i.op) == sim::WorkClass::Attention
               ? std::string("slow")
               : std::string();
  };
  expect_no_bound_exceeds(small_llama(), a, 60, 8);
  a.remark = [](const program::Instr& i) {
    return std::string(i.attrs.find("hop") != nullptr ? "slow" : "");
  };
  expect_no_bound_exceeds(small_llama(), a, 60, 9);
}

// A step of one micro-batch: gradients reuse memory of activations that are dead by then.
TEST(Bounds, OneMicroBatch) {
  expect_no_bound_exceeds(small_llama({"batch.global=8"}), small_cluster(), 120, 4);
  expect_no_bound_exceeds(small_experts({"batch.global=8"}), small_cluster(), 80, 5);
}

// Groups of other sizes, optimizer state shared by replicas, groups that stay whole.
TEST(Bounds, Groups) {
  const auto edit = [](config::Recipe& r, std::mt19937& rng) {
    config::Parallel& p = r.parallel;
    using Kind = config::Grouping::Kind;
    const auto draw = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    const config::Recipe before = r;
    p.group = draw(2) == 0 ? config::Grouping{Kind::Blocks, 1 + draw(8)}
                           : config::Grouping{Kind::Bytes, int64_t{1024} << draw(14)};
    if (p.dp_replicate > 1 && p.zero > 0) p.zero_replicas = draw(2);
    if (p.zero == 3 && draw(3) == 0) p.persist_below = base::Bytes(int64_t{1024} << draw(12));
    if (p.zero == 3 && r.model.moe.experts > 0)
      p.reshard_experts = static_cast<config::ReshardExperts>(draw(3));
    if (!config::problems_of(r).empty()) r = before;
  };
  expect_no_bound_exceeds(small_llama(), small_cluster(), 100, 10, edit);
  expect_no_bound_exceeds(small_experts(), small_cluster(), 60, 11, edit);
}

TEST(Bounds, ExpertsWithACapacity) {
  expect_no_bound_exceeds(small_experts({"model.moe.capacity_factor=1.25"}), small_cluster(), 60, 6);
  expect_no_bound_exceeds(small_experts({"model.moe.capacity_factor=0.5", "model.moe.pad=true"}),
                          small_cluster(), 60, 7);
}

TEST(Bounds, SlowNetworkAndFastChips) {
  plan::Assumptions a = small_cluster();
  a.cluster.outer.bytes_per_s /= 50;
  a.cluster.inner.bytes_per_s /= 20;
  const LayoutSpace space = small_space();
  const std::vector<config::Recipe> all = legal_recipes(small_llama(), space, kWorld);
  const Bounds bounds(a);
  std::mt19937 rng(3);
  for (int i = 0; i < 60; ++i) {
    const config::Recipe& r = all[rng() % all.size()];
    EXPECT_LE(bounds.exact(r).seconds, plan::make_plan(r, a).time.step * (1 + 1e-9)) << layout_words(r);
  }
}

using ByClass = std::array<int64_t, program::kNumMemoryClasses>;

ByClass persistent_state(const program::Program& p) {
  ByClass bytes{};
  for (const program::Buffer& b : p.buffers)
    if (b.scope == program::Scope::Persistent) bytes[static_cast<size_t>(b.memory_class)] += b.bytes;
  return bytes;
}

// The state table, summed by one pure function, is what compiled programs store, class by class; the search
// sums the same function over a small model.
void expect_state_equals_programs(const config::Recipe& recipe, int seed) {
  using program::MemoryClass;
  const sim::Machine machine = plan::machine_of(small_cluster());
  const std::vector<config::Recipe> all = legal_recipes(recipe, small_space(), kWorld);
  std::mt19937 rng(static_cast<unsigned>(seed));
  std::map<config::OptimizerKind, int> seen;
  for (const auto& [kind, name] : config::Names<config::OptimizerKind>::kTable)
    if (kind != config::OptimizerKind::Custom) seen[kind] = 0;
  const int kinds = static_cast<int>(seen.size());
  constexpr int kEach = 3;  // layouts of every optimizer, among those that are legal with it
  for (int i = 0; i < 20 * kEach * kinds; ++i) {
    config::Recipe r = all[rng() % all.size()];
    const auto next = std::next(seen.begin(), i % kinds);
    if (next->second == kEach) continue;
    r.optimizer.kind = next->first;
    const bool may_have_momentum =
        r.optimizer.kind == config::OptimizerKind::Sgd || r.optimizer.kind == config::OptimizerKind::Lars;
    r.optimizer.momentum = may_have_momentum && next->second % 2 == 0 ? 0.9 : 0;
    if (rng() % 3 == 0) r.precision.master = config::Master::Split;
    if (rng() % 3 == 0)
      for (const char* const match : {"blocks.1.*", "embed.*"}) {
        r.optimizer.groups.push_back({.match = match, .kind = {}, .lr = {}, .weight_decay = {}});
        r.optimizer.groups.back().update = false;
      }
    if (!config::problems_of(r).empty()) continue;
    ++next->second;
    SCOPED_TRACE(config::to_toml(r));
    const BlockTables tables = make_tables(r, machine);
    const StateCostModel costs(r, machine);
    for (int64_t rank = 0; rank < kWorld; rank += 3) {
      const compiler::Compiled c =
          compiler::compile_unverified(r, {.rank = base::RankId(static_cast<int32_t>(rank))});
      const ByClass stored = persistent_state(c.program);
      ByClass expected{};
      const auto expect = [&](graph::Role role, int64_t bytes) {
        expected[static_cast<size_t>(program::memory_class_of(role))] += bytes;
      };
      const bool gradients_stay = r.batch.accumulation > 1 || r.parallel.pp > 1;
      const std::vector<layout::StateRows> rows = layout::state_table(c.step_graph.states, c.groups);
      for (size_t g = 0; g < rows.size(); ++g)
        for (const layout::StateRow& row : rows[g])
          if (row.role != graph::Role::Gradient || gradients_stay)
            expect(row.role, layout::local_bytes(row, {.elements = c.groups[g].count,
                                                       .shards = c.layout.mesh.size(c.groups[g].data.shard),
                                                       .zero = c.groups[g].zero,
                                                       .outer = c.layout.mesh.size(c.groups[g].data.outer)}));
      for (const graph::StateDecl& s : c.step_graph.states)
        if (s.role == graph::Role::RouterBias || (s.role == graph::Role::Moment && s.param.empty()))
          expect(s.role, graph::stored_bytes(s));  // of the model, not of a parameter
      int64_t total = 0;
      for (const MemoryClass k : {MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer}) {
        EXPECT_EQ(expected[static_cast<size_t>(k)], stored[static_cast<size_t>(k)]) << to_string(k);
        total += stored[static_cast<size_t>(k)];
      }
      int64_t priced = 0;
      for (size_t label = 0; label < tables.kind.size(); ++label)
        if (c.pipeline.stages.rank_of_block(static_cast<int>(label)) ==
            c.layout.mesh.index(base::RankId(static_cast<int32_t>(rank)), c.layout.pipeline))
          priced += costs.of(tables.block(label)).bytes;
      for (const program::StatePlace& s : c.program.states) priced += s.place.bytes();
      EXPECT_EQ(priced, total) << "as the search has it, rank " << rank;
      // Scalars that outlive a step are states, too.
      std::set<std::string> declared, listed;
      for (const graph::StateDecl& s : c.step_graph.states)
        if (s.role == graph::Role::Scalar) declared.insert(s.name);
      for (const program::ScalarDecl& s : c.program.scalar_table)
        if (s.kind == program::ScalarKind::State) listed.insert(s.name);
      EXPECT_EQ(declared, listed);
    }
  }
  for (const auto& [kind, count] : seen) EXPECT_EQ(count, kEach) << config::name_of(kind);
}

TEST(State, OfRandomLayoutsEqualsPersistentBytes) {
  expect_state_equals_programs(small_llama(), 11);
  expect_state_equals_programs(small_experts({"model.moe.bias_rate=0.001"}), 12);
}

}  // namespace
}  // namespace quintet::search
