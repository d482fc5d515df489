// A plan agrees with the programs.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/temp_folder.h"
#include "base/text.h"
#include "plan/group_warnings.h"
#include "plan/layout_warnings.h"
#include "plan/plan_support.h"
#include "plan/small_models.h"
#include "plan/text.h"
#include "plan/time.h"
#include "plan/timeline.h"
#include "program/allocate.h"
#include "program/ledger.h"
#include "sim/time_breakdown.h"

namespace quintet::plan {
namespace {

using program::testing::all_layouts;
using program::testing::Layout;
using program::testing::Overrides;
using testing::assumptions_for;
using testing::recipe_of;

// For every rank of the world, compiled separately.
TEST(Plan, MemoryIsTheArenaOfEveryRank) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = recipe_of(layout.overrides);
    Assumptions assumptions = assumptions_for(recipe);
    assumptions.workspace_bytes = [](const program::Instr& i) {
      return i.op == &graph::kLinearDw ? 3 * i.in[0].type.bytes() : 0;
    };
    const Report report = make_plan(recipe, assumptions);
    ASSERT_EQ(report.memory.ranks.size(), static_cast<size_t>(recipe.parallel.pp));
    int64_t most = 0;
    for (int64_t r = 0; r < recipe.parallel.world(); ++r) {
      compiler::CompileOptions options;
      options.rank = base::RankId(static_cast<int32_t>(r));
      options.workspace_bytes = assumptions.workspace_bytes;
      const compiler::Compiled c = compiler::compile(recipe, options);
      const size_t stage = static_cast<size_t>(c.layout.mesh.index(options.rank, c.layout.pipeline));
      const RankMemory& planned = report.memory.ranks[stage];
      EXPECT_EQ(planned.arena_bytes, c.program.arena_bytes) << "rank " << r;
      EXPECT_EQ(planned.by_class, program::peak_of(c.program).by_class) << "rank " << r;
      EXPECT_EQ(planned.total(),
                c.program.arena_bytes + report.assumptions.cluster.accelerator.runtime_bytes);
      most = std::max(most, planned.total());
    }
    EXPECT_EQ(report.memory.ranks[report.memory.most_loaded].total(), most);
  }
}

TEST(Plan, SharesAddUpToTheStep) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = recipe_of(layout.overrides);
    Assumptions a = assumptions_for(recipe);
    a.stack.step_seconds = 0.001;
    a.stack.hidden = 0.7;
    const Time t = make_plan(recipe, a).time;
    double sum = 0, exposed = 0, waits = 0;
    for (const TimeShare& s : t.shares) {
      EXPECT_GE(s.seconds, 0) << s.what;
      sum += s.seconds;
      if (s.what.starts_with("wait ")) waits += s.seconds;
    }
    for (const LinkBytes& l : t.links) exposed += l.exposed;
    EXPECT_NEAR(sum, t.step, 1e-9 * t.step);
    EXPECT_NEAR(exposed, waits, 1e-9 * t.step);
    EXPECT_LT(t.mfu, 1);
    EXPECT_NEAR(t.mfu, t.model_flops / (t.step * t.devices * t.peak_flops), 1e-12);
    EXPECT_EQ(t.tokens, static_cast<double>(recipe.batch.global * recipe.data.seq_len));
  }
}

// Bytes by link are the program's ledger, except for rows of experts, which are worst cases there.
TEST(Plan, LinkBytesAreTheLedger) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = recipe_of(layout.overrides);
    Assumptions a = assumptions_for(recipe);
    a.timeline = true;
    const Report report = make_plan(recipe, a);
    const compiler::RankProgram& r = report.timeline->ranks.program[static_cast<size_t>(report.time.busiest)];
    std::map<std::string, double> expected, got;
    for (const program::LedgerRow& row : program::make_ledger(r.program, r.step).rows)
      if (row.kind != program::CollectiveKind::AllToAllV)
        expected[program::axes_text(r.program.comms[row.comm.index()])] += row.sent_bytes;
    for (const LinkBytes& l : report.time.links) got[l.axes] += l.bytes;
    for (const auto& [axes, bytes] : expected)
      if (axes != "ep") {
        EXPECT_DOUBLE_EQ(got[axes], bytes) << axes;
      }
    if (recipe.model.moe.experts == 0) {
      EXPECT_EQ(got.size(), expected.size());
    }
  }
}

// Expected rows never exceed the worst case, and grow with the imbalance.
TEST(Plan, ExpertsCountAsTheirMean) {
  const config::Recipe recipe =
      recipe_of({"model.layers=3", "model.moe.first_dense=1", "model.moe.experts=8", "model.moe.top_k=2",
                 "model.moe.ffn=12", "parallel.dp_shard=4", "parallel.zero=1", "parallel.ep=4"});
  Assumptions a = assumptions_for(recipe);
  const auto bytes = [&](double imbalance) {
    a.imbalance = imbalance;
    for (const LinkBytes& l : make_plan(recipe, a).time.links)
      if (l.axes == "ep") return l.bytes;
    return 0.0;
  };
  const double mean = bytes(1);
  // In both directions, forward and backward, in two blocks: rows of 16 f32, weights of one f32 and their
  // gradients back, and counts.
  const double tokens = 8, rows = tokens * 2, row = 16 * 4;
  EXPECT_GE(mean, 2 * 4 * rows * row * 3 / 4);
  EXPECT_LT(mean, 1.2 * 2 * 4 * rows * row * 3 / 4);
  EXPECT_GT(bytes(1.5), 1.4 * mean);
  EXPECT_GT(bytes(100), bytes(1.5));
  EXPECT_EQ(bytes(100), bytes(1000));  // capped at the worst case
}

// 6 N and attention, to the last FLOP.
TEST(Plan, ModelFlopsAreThoseOfTheLiterature) {
  const config::Recipe recipe = recipe_of({"model.layers=3", "batch.accumulation=2"});
  const Report report = make_plan(recipe, assumptions_for(recipe));
  const config::Model& m = recipe.model;
  const double tokens = static_cast<double>(recipe.batch.global * recipe.data.seq_len);
  const double matrices =
      static_cast<double>(m.layers * (m.embed * m.head_dim * (m.heads + 2 * m.kv_heads) +
                                      m.heads * m.head_dim * m.embed + 3 * m.embed * m.ffn) +
                          m.vocab * m.embed);
  const double s = static_cast<double>(recipe.data.seq_len);
  // Two matmuls over every visible pair, three times.
  const double attention = 3 * 2 * 2.0 * static_cast<double>(m.layers * m.heads * m.head_dim) * (s + 1) / 2;
  EXPECT_DOUBLE_EQ(report.time.model_flops, tokens * (6 * matrices + attention));
  EXPECT_GE(report.time.hardware_flops, report.time.model_flops);
}

TEST(Plan, RecomputeIsHardwareNotModel) {
  const config::Recipe none = recipe_of({}), full = recipe_of({"memory.recompute=full"});
  const Time a = make_plan(none, assumptions_for(none)).time, b = make_plan(full, assumptions_for(full)).time;
  EXPECT_EQ(a.model_flops, b.model_flops);
  EXPECT_GT(b.hardware_flops, 1.1 * a.hardware_flops);
  EXPECT_GT(b.hfu, b.mfu);
}

// A step of many micro-batches extrapolated from two short ones equals the whole.
TEST(Plan, LongStepsFollowFromShortOnes) {
  const std::vector<Layout> list = {
      {"single", {"batch.accumulation=40"}},
      {"zero1", {"parallel.dp_shard=2", "parallel.zero=1", "batch.accumulation=40"}},
      {"zero2", {"parallel.dp_shard=2", "parallel.zero=2", "batch.accumulation=40"}},
      {"zero3", {"parallel.dp_shard=4", "parallel.zero=3", "parallel.tp=2", "batch.accumulation=40"}},
      {"1f1b",
       {"parallel.pp=2", "batch.accumulation=41", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"interleaved",
       {"parallel.pp=2", "batch.accumulation=40", "parallel.schedule=interleaved", "model.layers=4"}},
      {"zb-h1", {"parallel.pp=4", "model.layers=4", "batch.accumulation=64", "parallel.schedule=zb-h1"}},
      {"zb-v", {"parallel.pp=2", "model.layers=4", "batch.accumulation=40", "parallel.schedule=zb-v"}},
  };
  for (const Layout& layout : list) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = recipe_of(layout.overrides);
    Assumptions a = assumptions_for(recipe);
    const Report whole = make_plan(recipe, a);
    a.max_instructions = 1;
    const Report few = make_plan(recipe, a);
    EXPECT_EQ(few.memory.ranks[few.memory.most_loaded].arena_bytes,
              whole.memory.ranks[whole.memory.most_loaded].arena_bytes);
    EXPECT_NEAR(few.time.step, whole.time.step, 1e-6 * whole.time.step);
    EXPECT_NEAR(few.time.tokens, whole.time.tokens, 1e-6 * whole.time.tokens);
    EXPECT_NEAR(few.time.mfu, whole.time.mfu, 1e-6 * whole.time.mfu);
    ASSERT_EQ(few.time.links.size(), whole.time.links.size());
    for (size_t i = 0; i < few.time.links.size(); ++i)
      EXPECT_NEAR(few.time.links[i].bytes, whole.time.links[i].bytes,
                  1e-6 * whole.time.links[i].bytes + 1e-6);
    double sum = 0;
    for (const TimeShare& s : few.time.shares) sum += s.seconds;
    EXPECT_NEAR(sum, few.time.step, 1e-9 * few.time.step);
  }
}

TEST(Plan, BadInput) {
  const config::Recipe recipe = recipe_of({"parallel.dp_shard=2", "parallel.zero=1"});
  Assumptions a = assumptions_for(recipe);
  a.cluster = hardware::parse_cluster("1x8 h100");
  try {
    make_plan(recipe, a);
    FAIL();
  } catch (const base::UserError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("2 ranks"), std::string::npos) << what;
    EXPECT_NE(what.find("8 devices"), std::string::npos) << what;
    EXPECT_NE(what.find("dp_shard = 8"), std::string::npos) << what;
  }
  a = assumptions_for(recipe, "a100");
  a.matmul = hardware::Arithmetic::FP8;
  EXPECT_THROW(make_plan(recipe, a), base::UserError);
}

// Copies of the state for checkpoints are part of what a rank needs: on CPUs of the device's memory, which is
// the host's, beside a GPU of the node's.
TEST(Plan, CopiesOfTheStateCountAsMemory) {
  const std::vector<std::string> layout = {"parallel.dp_shard=2", "parallel.zero=1"};
  std::vector<std::string> saving = layout;
  saving.push_back("checkpoint.every=10");
  const config::Recipe plain = recipe_of(layout), saves = recipe_of(saving);
  Assumptions cpu = assumptions_for(plain, "cpu");
  const int64_t without = make_plan(plain, cpu).memory.ranks[0].total();
  const Report with = make_plan(saves, cpu);
  const int64_t copies = with.checkpoint.host.total();
  ASSERT_GT(copies, 0);
  EXPECT_EQ(with.memory.ranks[0].total(), without + copies);
  for (const int64_t missing : {0, 1}) {
    cpu.cluster.accelerator.memory_bytes = without + copies - missing;
    const Report r = make_plan(saves, cpu);
    EXPECT_EQ(r.memory.fits(), missing == 0);
    EXPECT_EQ(nlohmann::ordered_json::parse(to_json(r)).at("fits"), missing == 0);
    EXPECT_CONTAINS(to_text(r), missing == 0 ? "fits with 0 B free" : "DOES NOT FIT by 1 B");
    EXPECT_CONTAINS(to_text(r), "copies of state");
    EXPECT_TRUE(make_plan(plain, cpu).memory.fits());
  }

  Assumptions gpu = assumptions_for(plain);
  ASSERT_EQ(gpu.cluster.per_node, 2);
  for (const int64_t missing : {0, 1}) {
    gpu.cluster.host_bytes = 2 * copies - missing;
    const Report r = make_plan(saves, gpu);
    EXPECT_EQ(r.memory.fits(), missing == 0);
    EXPECT_TRUE(r.memory.fits_device());
    const auto json = nlohmann::ordered_json::parse(to_json(r)).at("memory");
    EXPECT_EQ(json.at("ranks").at(0).at("host_bytes"), copies);
    EXPECT_EQ(json.at("host_bytes_per_node"), 2 * copies);
    EXPECT_CONTAINS(to_text(r), "host memory per node: ");
    EXPECT_CONTAINS(to_text(r), missing == 0 ? ", fits\n" : "DOES NOT FIT by 1 B");
    EXPECT_TRUE(make_plan(plain, gpu).memory.fits());
  }
  // A node whose ranks are of two stages, one with more blocks than the other.
  const config::Recipe stages = recipe_of({"parallel.pp=2", "parallel.stages=[1, 3]", "batch.accumulation=2",
                                           "checkpoint.every=10", "model.layers=4"});
  const Report pipeline = make_plan(stages, assumptions_for(stages));
  const auto& ranks = pipeline.memory.ranks;
  ASSERT_NE(ranks[0].host_copies, ranks[1].host_copies);
  EXPECT_EQ(pipeline.memory.host_copies, ranks[0].host_copies + ranks[1].host_copies);
  gpu.cluster.host_bytes = 0;  // not known
  EXPECT_TRUE(make_plan(saves, gpu).memory.fits());
}

// Every group's traffic is booked on the slowest link that it crosses: two nodes of four.
TEST(Plan, LinksAreThoseThatGroupsCross) {
  const auto link_of = [](const std::vector<std::string>& layout, const std::string& axes) {
    const Report r = make_plan(testing::small_llama(layout), testing::small_cluster());
    std::string names;
    for (const LinkBytes& l : r.time.links)
      if (l.axes == axes) names += l.link;
    return names;
  };
  const std::vector<std::string> near = {"parallel.tp=4", "parallel.dp_shard=2", "parallel.zero=1"},
                                 far = {"parallel.tp=2", "parallel.pp=4"};
  EXPECT_EQ(link_of(near, "tp"), "inner");
  EXPECT_EQ(link_of(near, "dp_shard"), "outer");
  EXPECT_EQ(link_of(far, "tp"), "inner");
}

// Ranks of the first axis share the fast link, whichever it is, and the step takes as long as its links do.
TEST(Plan, TheOrderOfAxesDecidesWhichLinkAGroupCrosses) {
  const auto plan = [](const std::string& order) {
    return make_plan(testing::small_llama({"parallel.tp=4", "parallel.dp_shard=2", "parallel.zero=1", order}),
                     testing::small_cluster());
  };
  const auto link_of = [](const Report& r, const std::string& axes) {
    std::string names;
    for (const LinkBytes& l : r.time.links)
      if (l.axes == axes) names += l.link;
    return names;
  };
  const auto bytes_of = [](const Report& r) {
    double bytes = 0;
    for (const LinkBytes& l : r.time.links) bytes += l.bytes;
    return bytes;
  };
  const Report near = plan("parallel.order='tp-dp-pp'"), far = plan("parallel.order='dp-tp-pp'"),
               usual = plan("parallel.prefetch=1");
  EXPECT_EQ(link_of(near, "tp"), "inner");
  EXPECT_EQ(link_of(near, "dp_shard"), "outer");
  EXPECT_EQ(link_of(far, "tp"), "outer");
  EXPECT_EQ(link_of(far, "dp_shard"), "inner");
  EXPECT_EQ(near.time.step, usual.time.step);
  EXPECT_GT(far.time.step, near.time.step);
  EXPECT_DOUBLE_EQ(bytes_of(far), bytes_of(near)) << "the same messages over other links";
  ASSERT_EQ(far.warnings.size(), 1u);
  EXPECT_EQ(
      far.warnings[0],
      "parallel.tp = 4 crosses the slow link (outer): the fast one joins 4 devices, and its ranks are 2 "
      "apart; tp first in parallel.order would stay inside");
  EXPECT_NE(to_text(far).find("order dp_shard-dp_replicate-tp"), std::string::npos) << to_text(far);
}

// Coarser groups: fewer collectives, more memory. The plan says what either costs.
TEST(Plan, ThreeGranularitiesOfGroups) {
  const auto plan = [](const char* group) {
    return make_plan(testing::small_llama(
                         {"parallel.dp_shard=8", "parallel.zero=3", std::string("parallel.group=") + group}),
                     testing::small_cluster());
  };
  const Report fine = plan("\"256KiB\""), block = plan("auto"), coarse = plan("8");
  const auto peak = [](const Report& r) { return r.memory.ranks[r.memory.most_loaded].total(); };
  EXPECT_LT(peak(fine), peak(block));
  EXPECT_LT(1.02 * static_cast<double>(peak(block)), static_cast<double>(peak(coarse)));
  EXPECT_GT(data_collectives(fine), data_collectives(block));
  // Of four passes over eight blocks: gathered twice, reduced once.
  EXPECT_EQ(data_collectives(block) - data_collectives(coarse), 4 * 3 * 7);
  EXPECT_TRUE(block.warnings.empty());
  const auto expect_warning = [](const Report& r, const std::string& text) {
    ASSERT_EQ(r.warnings.size(), 1u);
    EXPECT_NE(r.warnings[0].find(text), std::string::npos) << r.warnings[0];
    EXPECT_NE(to_text(r).find("warning: " + r.warnings[0]), std::string::npos);
  };
  EXPECT_GT(fine.time.step, block.time.step);
  expect_warning(fine, "parallel.group = \"256KiB\" is too fine: ");
  expect_warning(fine, fmt::format("with {} collectives over data ranks instead of {}",
                                   data_collectives(fine), data_collectives(block)));
  expect_warning(coarse, fmt::format("parallel.group = 8 is too coarse: {} per device instead of {}",
                                     base::human_bytes(peak(coarse)), base::human_bytes(peak(block))));
  // Where latency is all that a message costs, several blocks are better.
  Assumptions slow = testing::small_cluster();
  slow.cluster.inner.latency_s = slow.cluster.outer.latency_s = 1e-3;
  expect_warning(make_plan(testing::small_llama({"parallel.dp_shard=8", "parallel.zero=3"}), slow),
                 "one block per group is too fine for these links: ");
}

TEST(Plan, WarnsWhenTensorGroupsCrossTheSlowLink) {
  hardware::Cluster c = testing::small_cluster().cluster;  // fast links join four
  EXPECT_TRUE(layout_warnings({.dp_shard = 2, .tp = 4}, c).empty());
  EXPECT_TRUE(layout_warnings({.dp_shard = 8}, c).empty());
  const std::vector<std::string> w = layout_warnings({.tp = 8}, c);
  ASSERT_EQ(w.size(), 1u);
  EXPECT_EQ(
      w[0],
      "parallel.tp = 8 crosses the slow link (outer): the fast one joins 4 devices; parallel.tp = 4 with "
      "parallel.pp = 2 would stay inside");
  // Groups of three: the second has devices 3, 4 and 5.
  EXPECT_EQ(layout_warnings({.dp_shard = 4, .tp = 3}, c).size(), 1u);
  EXPECT_TRUE(layout_warnings({.tp = 3}, c).empty()) << "all of it is in one domain";
  const Report r =
      make_plan(testing::small_llama({"parallel.tp=8", "model.kv_heads=8"}), testing::small_cluster());
  EXPECT_EQ(r.warnings, w);
  EXPECT_NE(to_text(r).find("warning: " + w[0] + "\n"), std::string::npos);
}

}  // namespace
}  // namespace quintet::plan
