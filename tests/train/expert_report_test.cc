// The expert statistics of a run, compared with routing computed here from weights and tokens.
#include "train/expert_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/local.h"
#include "models/families.h"
#include "train/element.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::read_metrics;
using test::SmallRun;
using train::ExpertUse;
using train::LoadAlarm;

constexpr int64_t kExperts = 4, kEmbed = 32, kChoices = 2;

// Experts that read the embedding directly, so that a token's scores depend only on its id and two tables.
graph::Graph router_on_embedding(const config::Model& model, const graph::BuildOptions& build) {
  const graph::DimSize vocab = {graph::Dim::Vocab, 256}, embed = {graph::Dim::Embed, kEmbed};
  graph::Builder b(build);
  const graph::ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 20), b.ids());
  b.next_block();
  const graph::ValueId y = models::expert_feed_forward(b, model, x, "blocks.0.ffn.");
  b.next_block();
  b.head(b.rms_norm(y, b.norm_weight("final_norm.weight", embed), 1e-5),
         b.weight("head.weight", {vocab, embed}, 0.02));
  return b.finish();
}

std::vector<double> initial_table(const config::Recipe& recipe, const compiler::ModelFn& model,
                                  const std::string& name) {
  std::vector<double> table;
  comm::run_local_world(1, [&](comm::World& world) {
    const train::Rank rank(recipe, world, {.model = model});
    rank.visit(program::holds_weights, [&](const train::Rank::Piece& p, const layout::GlobalIndex&) {
      if (p.segment->name != name) return;
      const exec::HostBytes data = rank.read(p);
      for (int64_t i = 0; i < p.count; ++i) table.push_back(train::read_element(data.data(), p.dtype, i));
    });
  });
  return table;
}

struct Expected {
  std::vector<int64_t> load = std::vector<int64_t>(kExperts);
  int64_t dropped = 0, assignments = 0;
  double entropy = 0, balance_loss = 0, z_loss = 0;
};

// The routing of the first step, token by token.
Expected route_by_hand(const config::Recipe& recipe, const std::vector<double>& embed,
                       const std::vector<double>& router, int64_t capacity) {
  const train::RunData data = train::load_data(recipe);
  const config::Moe& moe = recipe.model.moe;
  const int64_t rows = data.train.micro_tokens(), tokens = rows * recipe.parallel.dp();
  Expected e;
  double entropies = 0;
  for (int64_t micro = 0; micro < recipe.batch.accumulation; ++micro) {
    std::vector<double> assigned(kExperts), scores(kExperts);
    for (int64_t d = 0; d < recipe.parallel.dp(); ++d) {
      std::vector<int32_t> v[5];
      for (auto& column : v) column.resize(static_cast<size_t>(rows));
      data.train.fill(0, micro, d, {v[0], v[1], v[2], v[3], v[4]});
      std::vector<int64_t> in_sequence(kExperts);
      for (int64_t t = 0; t < rows; ++t) {
        if (t % recipe.data.seq_len == 0) std::fill(in_sequence.begin(), in_sequence.end(), 0);
        std::vector<double> logits(kExperts), p(kExperts);
        for (size_t x = 0; x < kExperts; ++x)
          for (int64_t i = 0; i < kEmbed; ++i)
            logits[x] += embed[static_cast<size_t>(v[0][static_cast<size_t>(t)] * kEmbed + i)] *
                         router[x * static_cast<size_t>(kEmbed) + static_cast<size_t>(i)];
        double sum = 0;
        for (const double z : logits) sum += std::exp(z);
        for (size_t x = 0; x < kExperts; ++x) {
          p[x] = std::exp(logits[x]) / sum;
          scores[x] += p[x];
          entropies -= p[x] * std::log(p[x]);
        }
        e.z_loss += moe.z_loss * std::log(sum) * std::log(sum) /
                    static_cast<double>(tokens * recipe.batch.accumulation);
        std::vector<size_t> best(kExperts);
        std::iota(best.begin(), best.end(), size_t{0});
        std::sort(best.begin(), best.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
        for (int64_t c = 0; c < kChoices; ++c) {
          const size_t x = best[static_cast<size_t>(c)];
          ++e.load[x], ++assigned[x], ++e.assignments;
          if (++in_sequence[x] > capacity) ++e.dropped;
        }
      }
    }
    const auto n = static_cast<double>(tokens);
    for (size_t x = 0; x < kExperts; ++x)
      e.balance_loss += moe.balance_loss / static_cast<double>(recipe.batch.accumulation) * kExperts *
                        (assigned[x] / (kChoices * n)) * (scores[x] / n);
  }
  e.entropy = entropies / static_cast<double>(tokens * recipe.batch.accumulation);
  return e;
}

// Each balance loss is a metric, with the value that it has alone.
TEST(ExpertReport, SeveralBalanceLossesAreReportedEach) {
  const std::vector<std::string> common = {
      "model.ffn=16",         "model.moe.experts=4",         "model.moe.top_k=2",
      "model.moe.ffn=16",     "model.moe.balance_loss=0.01", "run.steps=1",
      "precision.compute=f64"};
  const auto first_record = [&](const std::vector<std::string>& more) {
    const SmallRun small;
    std::vector<std::string> sets = common;
    sets.insert(sets.end(), more.begin(), more.end());
    small.train(sets, {});
    return read_metrics(small.run_folder().metrics()).at(0);
  };
  const auto both = first_record({"model.moe.balance.sequence=0.02"}), micro = first_record({}),
             sequence = first_record({"model.moe.balance_loss=0.02", "model.moe.balance_scope=\"sequence\""});
  EXPECT_FALSE(micro.contains("sequence_balance_loss"));
  const double a = micro.at("balance_loss"), b = sequence.at("balance_loss");
  EXPECT_NEAR(both.at("balance_loss"), a, 1e-14);
  EXPECT_NEAR(both.at("sequence_balance_loss"), b, 1e-14);
  EXPECT_NEAR(both.at("experts")[0].at("sequence_balance_loss"), sequence.at("experts")[0].at("balance_loss"),
              1e-14);
}

TEST(ExpertReport, CountsWhatTheRoutersDid) {
  const std::vector<std::string> common = {"model.layers=1",       "model.ffn=16",
                                           "model.moe.experts=4",  "model.moe.top_k=2",
                                           "model.moe.ffn=16",     "model.moe.balance_loss=0.01",
                                           "model.moe.z_loss=0.1", "model.moe.capacity_factor=0.75",
                                           "run.steps=1",          "precision.compute=f64"};
  constexpr int64_t kCapacity = 12;  // 0.75 x 2 x 32 / 4
  for (const std::vector<std::string>& layout :
       {test::kOneRank,
        {"parallel.ep=4"},
        {"parallel.ep=2", "parallel.cp=2", "parallel.tp=1", "parallel.sequence_parallel=false"},
        {"parallel.ep=2", "parallel.etp=2", "model.moe.pad=true"},
        {"parallel.zero=1", "parallel.sequence_parallel=false", "batch.micro=1"}}) {
    const SmallRun small;
    std::vector<std::string> sets = common, one = common;
    sets.insert(sets.end(), layout.begin(), layout.end());
    one.insert(one.end(), test::kOneRank.begin(), test::kOneRank.end());
    const config::Recipe recipe = small.recipe(sets);
    const compiler::ModelFn model = [&](const graph::BuildOptions& build) {
      return router_on_embedding(recipe.model, build);
    };
    const Expected e =
        route_by_hand(recipe, initial_table(small.recipe(one), model, "embed.weight"),
                      initial_table(small.recipe(one), model, "blocks.0.ffn.router.weight"), kCapacity);
    ASSERT_GT(e.dropped, 0);
    train::RunOptions options;
    options.model = model;
    small.train(sets, options);
    const nlohmann::json record = read_metrics(small.run_folder().metrics()).at(0);
    ASSERT_EQ(record.at("experts").size(), 1u);
    const nlohmann::json& block = record.at("experts")[0];
    EXPECT_EQ(block.at("block"), 0);
    EXPECT_EQ(block.at("load"), e.load);
    const auto all = static_cast<double>(e.assignments);
    const double most = static_cast<double>(*std::max_element(e.load.begin(), e.load.end()));
    EXPECT_DOUBLE_EQ(block.at("max_over_mean"), most * kExperts / all);
    EXPECT_EQ(record.at("load_max_over_mean"), block.at("max_over_mean"));
    EXPECT_DOUBLE_EQ(block.at("drop_rate"), static_cast<double>(e.dropped) / all);
    EXPECT_NEAR(block.at("entropy"), e.entropy, 1e-12);
    EXPECT_NEAR(block.at("entropy_share"), e.entropy / std::log(kExperts), 1e-12);
    EXPECT_NEAR(block.at("balance_loss"), e.balance_loss, 1e-14);
    EXPECT_NEAR(block.at("z_loss"), e.z_loss, 1e-12);
    EXPECT_EQ(record.at("balance_loss"), block.at("balance_loss"));
    if (recipe.parallel.ep == 2) {
      EXPECT_DOUBLE_EQ(block.at("rank_max_over_mean"),
                       static_cast<double>(std::max(e.load[0] + e.load[1], e.load[2] + e.load[3])) * 2 / all);
    }
  }
}

// Uses of two blocks with the given loads.
std::vector<ExpertUse> uses_of(const std::vector<double>& first, const std::vector<double>& second,
                               int64_t ep = 1) {
  config::Recipe recipe;
  recipe.batch.global = 5;
  recipe.data.seq_len = 2;
  recipe.parallel.ep = ep;
  std::vector<std::vector<double>> values = {second, first};
  for (auto& v : values) v.insert(v.end(), {5, 20 * std::log(2.0)});
  const std::vector<double> loss = {0.25};
  const std::vector<train::Rank::Sum> sums = {{graph::SumKind::Load, 4, values[0]},
                                              {graph::SumKind::BalanceLoss, 4, loss},
                                              {graph::SumKind::Load, 2, values[1]},
                                              {graph::SumKind::BalanceLoss, 2, loss}};
  return train::expert_uses(sums, recipe);
}

TEST(ExpertReport, NumbersOfABlock) {
  const std::vector<ExpertUse> uses = uses_of({10, 2, 4, 4}, {5, 5, 5, 5}, 2);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].block, 1);  // the graph's label 2: label 0 is the embedding
  EXPECT_EQ(uses[1].block, 3);
  EXPECT_DOUBLE_EQ(uses[0].max_over_mean, 2);
  EXPECT_DOUBLE_EQ(uses[0].rank_max_over_mean, 1.2);
  EXPECT_DOUBLE_EQ(uses[0].drop_rate(), 0.25);
  EXPECT_DOUBLE_EQ(uses[0].entropy, 2 * std::log(2.0));
  EXPECT_DOUBLE_EQ(uses[0].entropy_share(), 1);
  EXPECT_EQ(train::worst(uses), &uses[0]);
  observe::Record record;
  train::add_experts(record, uses, false);
  const auto json = nlohmann::json::parse(record.json());
  EXPECT_DOUBLE_EQ(json.at("balance_loss"), 0.5);
  EXPECT_FALSE(json.contains("z_loss"));
  EXPECT_EQ(json.at("experts")[0].at("load"), (std::vector<int64_t>{10, 2, 4, 4}));
  observe::Record empty;
  train::add_experts(empty, {}, true);
  EXPECT_EQ(empty.json(), "{}");
}

TEST(ExpertReport, LongListsOfLoadsAreWrittenOccasionally) {
  const std::vector<double> many(train::kShortLoads / 2 + 1, 1.0);
  for (const bool whole : {false, true}) {
    observe::Record record;
    train::add_experts(record, uses_of(many, many), whole);
    EXPECT_EQ(nlohmann::json::parse(record.json()).at("experts")[1].contains("load"), whole);
  }
}

TEST(ExpertReport, UnevenUseIsReportedOccasionally) {
  LoadAlarm alarm(2);
  const auto even = uses_of({5, 5, 5, 5}, {10, 2, 4, 4}, 2);  // 2x the mean: utilisation 50 %
  const auto bad = uses_of({5, 5, 5, 5}, {0, 4, 12, 4}, 2);
  EXPECT_EQ(alarm.check(1, even), "");
  const std::string line = alarm.check(2, bad);
  EXPECT_CONTAINS(line, "step 2: experts of block 3");
  EXPECT_CONTAINS(line,
                  "expert 2 receives 2.40x the mean load, utilisation 42 %; 1 of 4 experts receive nothing");
  EXPECT_CONTAINS(line, "the busiest of 2 expert ranks receives 1.60x the mean");
  EXPECT_EQ(line.find("blocks are below"), std::string::npos);
  EXPECT_EQ(alarm.check(3, bad), "");
  EXPECT_EQ(alarm.check(101, bad), "");
  EXPECT_EQ(alarm.check(150, even), "");
  EXPECT_CONTAINS(alarm.check(151, uses_of({0, 0, 20, 0}, {0, 4, 12, 4})), "2 of 2 blocks are below 50 %");
  EXPECT_EQ(alarm.check(152, {}), "");
}

}  // namespace
}  // namespace quintet
