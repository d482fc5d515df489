// What a user can add without changing the engine: ops with their own rules and kernels, a dim, and a model
// that uses them, in any layout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "config/print.h"
#include "config/validate.h"
#include "extension/channel_ops.h"
#include "layout/layout.h"
#include "models/build.h"
#include "plan/plan.h"
#include "program/text.h"
#include "search/search.h"
#include "tools/verify.h"

namespace quintet::tests {
namespace {

constexpr int64_t kWidth = 24, kLayers = 4;

compiler::ModelFn model() {
  return {[](const graph::BuildOptions& options) { return channel_model(options, kWidth, kLayers); },
          channel_packages()};
}

config::Recipe recipe(config::Parallel parallel, int64_t micro = 2, int64_t accumulation = 1) {
  config::Recipe r;
  r.name = "extension";
  r.data.seq_len = 8;
  r.model = compiler::custom_model(model(), r.data.seq_len);
  r.precision = config::Precision::of(base::DType::F64);
  r.parallel = std::move(parallel);
  r.batch = {micro * accumulation * r.parallel.dp(), micro, accumulation};
  r.optimizer.lr = 1e-2;
  r.run.steps = 4;
  r.run.seed = 7;
  return r;
}

const config::DimAxes kDivided = {{"channels", config::DimAxis::Tp}};

std::string problems(const config::Recipe& r) {
  std::string text;
  for (const config::Problem& p : config::problems_of(r)) text += to_string(p) + "\n";
  return text;
}

TEST(Extension, TheRecipeKnowsTheDimsOfTheModelAndNothingElse) {
  const config::Model m = compiler::custom_model(model(), 8);
  EXPECT_EQ(m.layers, kLayers);
  EXPECT_EQ(m.vocab, 61);
  const base::DimDemands expected = {{base::Dim::Vocab, 61, base::DimNeed::Pad},
                                     {channels(), kWidth, base::DimNeed::Divide}};
  EXPECT_EQ(m.demands, expected);
}

TEST(Extension, RanksThatDoNotDivideADimAreRefusedWithTheNearest) {
  EXPECT_EQ(problems(recipe({.tp = 4, .dims = kDivided})), "");
  const std::string text = problems(recipe({.tp = 5, .dims = kDivided}));
  EXPECT_NE(text.find("5 does not divide the model's channels 24"), std::string::npos) << text;
  EXPECT_NE(text.find("4 or 6"), std::string::npos) << text;
  EXPECT_EQ(problems(recipe({.tp = 5})), "") << "a dim that is not placed is not divided";
}

TEST(Extension, PlacedDimsMustBeTheModels) {
  const std::string text = problems(recipe({.tp = 2, .dims = {{"chanels", config::DimAxis::Tp}}}));
  EXPECT_NE(text.find("\"chanels\", which the model does not have"), std::string::npos) << text;
  EXPECT_NE(text.find("channels"), std::string::npos) << text;
}

TEST(Extension, ExpertRanksNeedExperts) {
  const std::string text = problems(recipe({.dp_shard = 2, .ep = 2}));
  EXPECT_NE(text.find("a model that has no experts"), std::string::npos) << text;
}

TEST(Extension, ADimIsDividedOnlyWhereTheRecipePlacesIt) {
  for (const bool placed : {true, false}) {
    const config::Recipe r =
        config::resolve(recipe({.tp = 2, .dims = placed ? kDivided : config::DimAxes{}}));
    const compiler::Compiled c = compiler::compile(r, {.model = model()});
    const graph::Graph& g = c.local.graph;
    EXPECT_EQ(g.type(g.find("layers.0.up.weight")).size(0), placed ? kWidth / 2 : kWidth);
    // The op's own rule made its attribute local.
    int scales = 0;
    for (const graph::Node& n : g.nodes()) {
      if (n.op->name != "channel_scale") continue;
      ++scales;
      EXPECT_EQ(n.attrs.integer("channels"), placed ? kWidth / 2 : kWidth);
    }
    EXPECT_GT(scales, 0);
  }
}

TEST(Extension, ProgramsWithForeignOpsReadBack) {
  const compiler::Compiled c =
      compiler::compile(config::resolve(recipe({.tp = 2, .dims = kDivided})), {.model = model()});
  const std::string text = program::to_text(c.program, c.step, {.full = true});
  const program::Program back = program::parse_text(text, model().ops());
  EXPECT_EQ(program::to_text(back, program::expand(back, back.calls), {.full = true}), text);
  EXPECT_THROW(program::parse_text(text), base::UserError);
}

// A plan compiles the same model: its bytes are those of the programs that a run would compile.
TEST(Extension, PlansOfTheModelAreItsPrograms) {
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster("2x4 h100");
  a.model = model();
  config::Parallel p{.dp_shard = 2, .zero = 2, .tp = 2, .dims = kDivided};
  p.pp = 2;
  p.schedule = "1f1b";
  config::Recipe r = recipe(p, 1, 2);
  r.precision = config::Precision::of(base::DType::BF16);
  r = config::resolve(r);
  const plan::Report report = plan::make_plan(r, a);
  ASSERT_EQ(report.memory.ranks.size(), 2u);
  int64_t parameters = 0;
  for (const plan::RankMemory& rank : report.memory.ranks) {
    const compiler::Compiled c = compiler::compile(r, {.rank = rank.rank, .model = model()});
    EXPECT_EQ(rank.arena_bytes, c.program.arena_bytes);
    parameters = models::parameter_count(c.logical);
  }
  EXPECT_EQ(report.parameters, parameters);
  EXPECT_GT(report.time.step, 0);
  EXPECT_GT(report.time.model_flops, 0);
  // Without the model there is nothing to plan, and a search has no smaller one to measure.
  a.model = {};
  EXPECT_THROW(plan::make_plan(r, a), base::UserError);
  a.model = model();
  try {
    search::search(r, a, search::usual_space(r, a.cluster), {});
    ADD_FAILURE() << "a custom model was searched";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("a search needs a model of a built-in family"), std::string::npos);
  }
}

// The layout fuzz: random layouts of the model; every number of every step must equal that of one rank.
TEST(Extension, RandomLayoutsComputeWhatOneRankComputes) {
  int64_t tried = 0, divided = 0, pipelines = 0, contexts = 0;
  for (uint64_t seed = 1; tried < 30; ++seed) {
    std::mt19937_64 random(seed);
    const auto of = [&](std::initializer_list<int64_t> list) {
      return *(list.begin() + static_cast<ptrdiff_t>(random() % list.size()));
    };
    config::Parallel p;
    p.dp_replicate = of({1, 1, 2});
    p.dp_shard = of({1, 2, 3});
    p.tp = of({1, 2, 3, 4});
    p.cp = of({1, 1, 2});
    p.pp = of({1, 1, 2});
    p.zero = p.dp_shard * p.cp > 1 ? of({0, 1, 2, 3}) : 0;
    p.sequence_parallel = p.tp > 1 && of({0, 1}) == 1;
    if (p.pp > 1) p.schedule = of({0, 1}) == 1 ? "1f1b" : "zb-h1";
    if (of({0, 1, 1}) == 1) p.dims = kDivided;
    if (p.world() > 12) continue;
    config::Recipe r = recipe(p, of({1, 2}), of({1, 2, 3}));
    if (of({0, 1}) == 1) r.memory.recompute = config::RecomputeKind::Full;
    if (!config::problems_of(r).empty()) continue;
    r = config::resolve(r);
    if (r.parallel.sequence_parallel && r.batch.micro * r.data.seq_len % (p.cp * p.tp) != 0) continue;
    ++tried;
    divided += !p.dims.empty() && p.tp > 1;
    pipelines += p.pp > 1;
    contexts += p.cp > 1;
    const tools::VerifyResult result = tools::verify(r, {.steps = 2, .synthetic = true, .model = model()});
    EXPECT_TRUE(result.pass()) << "seed " << seed << "\n"
                               << config::to_toml(r) << "\n"
                               << tools::to_table(result);
  }
  EXPECT_GE(divided, 5);
  EXPECT_GE(pipelines, 3);
  EXPECT_GE(contexts, 3);
}

}  // namespace
}  // namespace quintet::tests
