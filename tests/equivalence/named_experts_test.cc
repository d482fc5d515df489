// Experts, where other trainers had bugs. All in f64 against one rank; each test names the bug it guards
// against.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/temp_folder.h"
#include "compiler/compile.h"
#include "config/problem.h"
#include "config/schedule_traits.h"
#include "equivalence/checks.h"
#include "passes/recompute.h"

namespace quintet::tests {
namespace {

using config::BalanceScope;
using config::Recipe;
using tools::LayoutRun;

// Four experts, of which a token chooses two.
Recipe with_experts() {
  Recipe r = small_recipe();
  r.model.ffn = 0;
  r.model.moe = {.experts = 4, .top_k = 2, .ffn = 8};
  return r;
}

Recipe on(int64_t dp_shard, int64_t zero, int64_t tp, int64_t ep, int64_t etp = 1, int64_t cp = 1) {
  Recipe r = with_experts();
  r.parallel.dp_shard = dp_shard;
  r.parallel.zero = zero;
  r.parallel.tp = tp;
  r.parallel.sequence_parallel = tp > 1;
  r.parallel.ep = ep;
  r.parallel.etp = etp;
  r.parallel.cp = cp;
  return r;
}

// Every way to distribute the experts over eight ranks.
std::vector<Recipe> layouts() {
  return {on(4, 0, 2, 4), on(4, 3, 2, 2, 2),    on(2, 2, 1, 4, 2, 4),
          on(8, 1, 1, 4), on(1, 0, 2, 4, 2, 4), on(2, 3, 4, 1, 4)};
}

// Both runs with the router's biases preset so that every token chooses expert 0.
tools::VerifyResult all_to_one(Recipe r) {
  const auto prepare = [](train::Rank& rank) {
    for (const train::Rank::State& state : rank.states())
      rank.write(state.range, [&](std::byte* data) {
        std::fill_n(reinterpret_cast<double*>(data), state.count, 0.0);
        *reinterpret_cast<double*>(data) = 1e3;
      });
  };
  const data::Dataset dataset = tools::training_data(r, true);
  const auto run = [&](const Recipe& one) {
    return tools::run_layout(one, tools::training_batches(one, dataset), {.steps = 2, .prepare = prepare});
  };
  const LayoutRun layout = run(r);
  const auto& load = values_of(layout.steps[0].sums, "blocks.1.load");
  EXPECT_EQ(load[0], r.batch.global * r.data.seq_len);
  EXPECT_EQ(load[1] + load[2] + load[3], 0);
  return tools::compare(r, layout, run(tools::on_one_rank(r)));
}

// DeepSpeed#7461, PR#5008, #8262: zero 3 with experts hung if a rank had no tokens; users fed fake ones.
// Three of four expert ranks have nothing to do here, at every zero stage.
TEST(Experts, RanksWithoutTokensTakePart) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("zero {}", zero));
    Recipe r = on(4, zero, 1, 4);
    r.model.moe.top_k = 1;
    r.model.moe.normalise = false;
    r.model.moe.bias_rate = 1e-3;
    const tools::VerifyResult result = all_to_one(resolved(r, 2, 2));
    EXPECT_TRUE(result.pass()) << tools::to_table(result);
  }
}

// verl PR#4103, DeepSpeed#5794: skewed routing. One expert gets every token of every rank, within the planned
// memory, over expert tensor ranks, context ranks and pipeline stages too.
TEST(Experts, OneExpertTakesEverything) {
  for (Recipe r : {on(2, 3, 2, 4), on(2, 0, 2, 2, 2), on(1, 0, 2, 4, 1, 2)}) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.parallel.pp = 2;
    r.data.seq_len = 16;
    r.model.moe.top_k = 1;
    r.model.moe.normalise = false;
    r.model.moe.bias_rate = 1e-3;
    const tools::VerifyResult result = all_to_one(resolved(r, 1, 2));
    EXPECT_TRUE(result.pass()) << tools::to_table(result);
  }
}

// Room for a third of the mean rows: every rank, hence every expert, needs several passes in every layer and
// micro-batch. In every way to distribute experts, with every way to recompute, in pipelines that do and do
// not separate the weights' gradients.
TEST(Experts, EveryExpertOverflows) {
  const auto overflows = [](Recipe r) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.receive_bound = 0.3;
    r.model.moe.force_balance = true;
    expect_equal(resolved(r, 2, 1));
  };
  for (const Recipe& r : layouts()) overflows(r);
  for (const config::RecomputeKind kind : {config::RecomputeKind::Selective, config::RecomputeKind::Full}) {
    Recipe r = on(4, 3, 2, 4);
    r.memory.recompute = kind;
    r.model.moe.shared_ffn = 8;
    overflows(r);
  }
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    Recipe r = on(2, 1, 2, 4);
    r.parallel.pp = 2;
    r.parallel.schedule = schedule;
    overflows(r);
  }
}

// Rows that the backward pass sends again for the weights' gradients alone, from a norm that is recomputed
// with the gradient of its input: further passes of these gradients come after those of the input's.
TEST(Experts, OverflowWithRowsSentAgain) {
  Recipe r = on(4, 1, 1, 4);
  r.model.moe.receive_bound = 0.3;
  r.model.moe.force_balance = true;
  r.model.moe.shared_ffn = 8;
  r = resolved(r, 2, 1);
  const graph::Graph logical = compiler::compile(r, {}).logical;
  compiler::Fit fit{.marks = passes::recomputable(logical)};
  for (size_t i = 0; i < fit.marks.size(); ++i) {
    const graph::OpDef* const op = logical.nodes()[i].op;
    fit.marks[i] =
        fit.marks[i] && (op == &graph::kRmsNorm || op == &graph::kPack || op == &graph::kToExperts);
  }
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun layout =
      tools::run_layout(r, tools::training_batches(r, dataset), {.steps = 2, .fit = fit});
  const LayoutRun alone = run(tools::on_one_rank(r), dataset);
  const tools::VerifyResult result = tools::compare(r, layout, alone);
  EXPECT_TRUE(result.pass()) << tools::to_table(result);
}

// The same when one rank receives everything and the others nothing: they exchange empty messages for as many
// passes as it needs.
TEST(Experts, OneExpertTakesEverythingInPasses) {
  for (Recipe r : {on(2, 3, 2, 4), on(2, 0, 2, 2, 2), on(1, 0, 2, 4, 1, 2)}) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.top_k = 1;
    r.model.moe.normalise = false;
    r.model.moe.bias_rate = 1e-3;
    r.model.moe.receive_bound = 0.6;
    const tools::VerifyResult result = all_to_one(resolved(r, 1, 2));
    EXPECT_TRUE(result.pass()) << tools::to_table(result);
  }
}

// Recorded choices are repeated wherever a token's rows are: over data, tensor, context and pipeline ranks,
// with capacities, recompute, and blocks without experts. The one rank repeats them too.
TEST(Experts, RoutesAreRepeatedInEveryLayout) {
  const auto repeats = [](Recipe r) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.data.routes = "given";
    expect_equal(resolved(r, 2, 2));
  };
  for (const Recipe& r : layouts()) repeats(r);
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    Recipe r = on(2, 1, 1, 2, 1, 2);
    r.data.seq_len = 16;
    r.parallel.pp = 2;
    r.parallel.schedule = schedule;
    r.model.layers = 4;
    r.model.moe.every = 2;  // the first block has none
    r.model.ffn = 8;
    r.model.moe.capacity_factor = 1.2;
    r.memory.recompute = config::RecomputeKind::Full;
    repeats(r);
  }
}

// Rows that fit take one pass, which computes what it computes without a bound: the same bits.
TEST(Experts, BoundWithoutOverflowChangesNothing) {
  Recipe r = on(4, 1, 2, 4);
  r.model.moe.force_balance = true;
  const Recipe plain = resolved(r, 2, 1);
  r.model.moe.receive_bound = 1.5;
  const Recipe bounded = resolved(r, 2, 1);
  const data::Dataset dataset = tools::training_data(plain, true);
  const LayoutRun a = run(plain, dataset, {}, 2), b = run(bounded, dataset, {}, 2);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].result.loss, b.steps[i].result.loss);
    EXPECT_EQ(a.steps[i].result.grad_norm, b.steps[i].result.grad_norm);
  }
}

// Megatron-LM#1517: a change from pipeline to expert ranks failed. Expert ranks are formed from data, context
// and tensor ranks together, so there may be more of them than data ranks.
TEST(Experts, MoreExpertRanksThanDataRanks) {
  expect_equal(resolved(on(2, 1, 2, 4), 2, 1));
  expect_equal(resolved(on(1, 0, 4, 4), 2, 1));
  expect_equal(resolved(on(1, 0, 2, 4, 1, 2), 2, 1));
  expect_equal(resolved(on(2, 3, 2, 4, 2, 2), 2, 1));
}

// torchtitan#2972: gradients scaled by a number of ranks or tokens. Gradients of experts are sums over
// tokens, wherever these come from: not means over the copies of an expert, nor over ep.
TEST(Experts, GradientsDoNotDependOnTheNumberOfCopies) {
  for (const int64_t ep : {1, 2, 4})
    for (const int64_t zero : {0, 2, 3}) {
      SCOPED_TRACE(fmt::format("ep {}, zero {}", ep, zero));
      Recipe r = on(4, zero, 1, ep);
      r.parallel.dp_replicate = 2;
      expect_equal(resolved(r, 1, 2));
    }
}

// Megatron-LM PR#5916: ep with tp counted too little in the norm; VeOmni#184: hybrid sharding too much.
TEST(Norm, ExpertGradientsCountOnce) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.optimizer.clip_norm = 0.05;
    expect_norm_counts_once(resolved(r, 2, 1));
    r.parallel.dp_replicate = 2;
    expect_norm_counts_once(resolved(r, 2, 1));
  }
}

// Megatron-LM#7452 (token counts of the router by rank). What is dropped follows from the tokens of a
// capacity group alone, not from which of them share a rank.
TEST(Experts, DroppedTokensDoNotDependOnTheLayout) {
  for (const config::DropPolicy policy :
       {config::DropPolicy::Probability, config::DropPolicy::Position, config::DropPolicy::Random})
    for (const int64_t group : {1, 2})
      for (Recipe r : layouts()) {
        SCOPED_TRACE(fmt::format("{}, group {}, policy {}", tools::describe(r.parallel), group,
                                 static_cast<int>(policy)));
        r.model.moe.capacity_factor = 0.6;
        r.model.moe.drop = policy;
        r.model.moe.capacity_group = group;
        r = resolved(r, 2, 1);
        const LayoutRun layout = run(r, tools::training_data(r, true), {}, 1);
        EXPECT_GT(values_of(layout.steps[0].sums, "blocks.0.load")[4], 0) << "nothing is dropped";
        expect_equal(r);
      }
}

// Megatron-LM#7452: the router's loss counted the tokens of one rank. It must equal that of one rank in all
// layouts and for every scope.
TEST(Experts, BalanceLossDoesNotDependOnTheLayout) {
  for (const BalanceScope scope : {BalanceScope::MicroBatch, BalanceScope::Sequence, BalanceScope::Global})
    for (Recipe r : layouts()) {
      SCOPED_TRACE(fmt::format("{}, scope {}", tools::describe(r.parallel), static_cast<int>(scope)));
      r.model.moe.balance_loss = 0.5;
      r.model.moe.z_loss = 0.1;
      r.model.moe.balance_scope = scope;
      r = resolved(r, 2, 2);
      const data::Dataset dataset = tools::training_data(r, true);
      const LayoutRun layout = run(r, dataset, {}, 1), one = run(tools::on_one_rank(r), dataset, {}, 1);
      for (const char* name : {"blocks.0.balance_loss", "blocks.1.z_loss"}) {
        const double here = values_of(layout.steps[0].sums, name)[0],
                     there = values_of(one.steps[0].sums, name)[0];
        EXPECT_GT(there, 0);
        EXPECT_NEAR(here, there, 1e-12 * there) << name;
      }
      expect_equal(r);
    }
}

// The global balance loss of a micro-batch counts the loads of those before it, so the order of forwards is
// part of the math (Rank.OnlyTheGlobalBalanceLossDependsOnTheOrderOfMicroBatches shows it on one rank). Every
// named schedule keeps it. A schedule file may reorder backwards; one that reorders forwards is refused.
TEST(Experts, GlobalBalanceInPipelinesIsThatOfOneRank) {
  const test::TempFolder folder;
  Recipe r = with_experts();
  r.parallel.pp = 2;
  r.model.moe.balance_loss = 0.5;
  r.model.moe.balance_scope = BalanceScope::Global;
  for (const std::string_view schedule : config::pipeline_schedules()) {
    SCOPED_TRACE(schedule);
    Recipe named = r;
    named.parallel.schedule = std::string(schedule);
    named.model.layers = config::traits_of(named.parallel.schedule).two_chunks() ? 4 : 2;
    expect_equal(resolved(named, 1, 4));
  }
  const auto of_file = [&](const std::string& order, BalanceScope scope) {
    const base::Path file = folder / "own.txt";
    base::write_file_atomically(file,
                                fmt::format("schedule own\nstages 2\nchunks 1\nmicro_batches 4\nplacement "
                                            "looped\n0: {}\n1: {}\n",
                                            order, order));
    Recipe own = r;
    own.parallel.schedule = "file:" + file.string();
    own.model.layers = 2;
    own.model.moe.balance_scope = scope;
    return resolved(own, 1, 4);
  };
  expect_equal(of_file("0F0 0F1 0F2 0F3 0BW3 0BW1 0BW0 0BW2", BalanceScope::Global));
  const std::string reordered = "0F1 0F0 0F3 0F2 0BW0 0BW1 0BW2 0BW3";
  EXPECT_THROW(expect_equal(of_file(reordered, BalanceScope::Global)), config::RecipeError);
  for (const BalanceScope scope : {BalanceScope::MicroBatch, BalanceScope::Sequence})
    expect_equal(of_file(reordered, scope));
}

// How much a model amplifies rounding is measured with other micro-batches. Where these are part of the math,
// the difference is not one of rounding: it excused gradients that were 10 % off (a schedule file that
// reorders forwards, with the refusal above turned off).
TEST(Experts, NothingIsExcusedWhereMicroBatchesArePartOfTheMath) {
  Recipe r = with_experts();
  r.model.moe.balance_loss = 0.5;
  const auto others = [&](BalanceScope scope) {
    r.model.moe.balance_scope = scope;
    return tools::with_other_micro_batches(resolved(r, 2, 2));
  };
  const auto by_sequence = others(BalanceScope::Sequence);
  ASSERT_TRUE(by_sequence);
  EXPECT_EQ(by_sequence->batch.micro, 1);
  EXPECT_EQ(by_sequence->batch.accumulation, 4);
  EXPECT_FALSE(others(BalanceScope::MicroBatch));
  EXPECT_FALSE(others(BalanceScope::Global));
}

// Megatron-LM#656 (replicas that drift apart). The biases move by the load of all ranks: with only its own,
// every rank would route with different biases. run_layout() compares them bit for bit on all ranks.
TEST(Experts, BiasesMoveByTheLoadOfAllRanks) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.score = config::RouterScore::Sigmoid;
    r.model.moe.bias_rate = 0.05;
    r = resolved(r, 2, 2);
    const LayoutRun layout = run(r, tools::training_data(r, true), {}, 1);
    const auto& load = values_of(layout.steps[0].sums, "blocks.0.load");
    const auto& bias = values_of(layout.steps[0].states, "blocks.0.ffn.router.bias");
    const double mean = std::accumulate(load.begin(), load.begin() + 4, 0.0) / 4;
    for (size_t e = 0; e < 4; ++e)
      EXPECT_EQ(bias[e], load[e] < mean ? 0.05 : load[e] > mean ? -0.05 : 0) << e;
    expect_equal(r, {}, 3);
  }
}

// torchtitan#773 (recompute combined with other features). Routing with a different outcome when recomputed
// would send other rows than the first time: it is never recomputed, and gradients are bit-equal.
TEST(Experts, RecomputeChangesNoBit) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.capacity_factor = 0.8;
    r.model.moe.balance_loss = 0.1;
    r = resolved(r, 2, 1);
    const data::Dataset dataset = tools::training_data(r, true);
    const LayoutRun kept = run(r, dataset);
    for (const auto kind : {config::RecomputeKind::Selective, config::RecomputeKind::Full}) {
      r.memory.recompute = kind;
      const LayoutRun again = run(r, dataset);
      for (size_t s = 0; s < 2; ++s)
        for (size_t t = 0; t < kept.steps[s].gradients.size(); ++t)
          EXPECT_EQ(kept.steps[s].gradients[t].values, again.steps[s].gradients[t].values)
              << kept.steps[s].gradients[t].name;
    }
    expect_equal(r);
  }
}

// Megatron-LM PR#5916 (ep with tp). Tensor ranks hold the same rows without sequence parallel: each row is
// routed once, not tp times.
TEST(Experts, TensorRanksRouteEachRowOnce) {
  for (const bool sequence_parallel : {false, true})
    for (const int64_t ep : {1, 2, 4}) {
      Recipe r = on(2, 0, 4, ep);
      r.parallel.sequence_parallel = sequence_parallel;
      r = resolved(r, 2, 1);
      const LayoutRun layout = run(r, tools::training_data(r, true), {}, 1);
      const auto& load = values_of(layout.steps[0].sums, "blocks.1.load");
      EXPECT_EQ(std::accumulate(load.begin(), load.begin() + 4, 0.0), 2 * r.batch.global * r.data.seq_len);
      expect_equal(r);
    }
}

// DeepSpeed#5794 (padded versus exact sizes). Padding only makes messages equal in size.
TEST(Experts, PaddingChangesNothing) {
  for (Recipe r : {on(4, 0, 1, 4), on(4, 3, 1, 2, 2), on(2, 1, 2, 4), on(1, 0, 1, 2, 1, 4)}) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.capacity_factor = 1;
    r = resolved(r, 2, 1);
    const data::Dataset dataset = tools::training_data(r, true);
    const LayoutRun plain = run(r, dataset);
    r.model.moe.pad = true;
    const LayoutRun padded = run(r, dataset);
    EXPECT_NEAR(plain.steps[1].result.loss, padded.steps[1].result.loss, 1e-13 * plain.steps[1].result.loss);
    EXPECT_NEAR(plain.steps[1].result.grad_norm, padded.steps[1].result.grad_norm, 1e-12);
    expect_equal(r);
  }
}

// litgpt#1417, pytorch#104690 (frozen parameters under sharding). A frozen router still routes, frozen
// experts still pass gradients on; a group without gradients must not be waited for.
TEST(Frozen, RouterOrExpertsOrEverythingElse) {
  for (const char* pattern : {"*router*", "*experts*", "blocks.0.*", "*attn*"})
    for (const int64_t zero : {0, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} zero {}", pattern, zero));
      Recipe r = on(2, zero, 2, 4);
      r.optimizer.groups = {frozen(pattern)};
      r.model.moe.balance_loss = 0.1;
      expect_equal(resolved(r, 2, 1));
    }
}

// bigscience/Megatron-DeepSpeed#407 refuses zero 2 and 3 with pipelines; with experts there are also two
// kinds of parameter groups.
TEST(Experts, ZeroTwoAndThreeWithPipelines) {
  for (const int64_t zero : {2, 3})
    for (const char* schedule : {"1f1b", "zb-h1", "dualpipev"}) {
      SCOPED_TRACE(fmt::format("zero {}, {}", zero, schedule));
      Recipe r = on(2, zero, 2, 4);
      r.model.layers = 4;
      r.model.moe.first_dense = 1;
      r.model.ffn = 8;
      r.model.moe.bias_rate = 0.01;
      r.parallel.pp = 2;
      r.parallel.schedule = schedule;
      expect_equal(resolved(r, 1, 4));
    }
}

// torchtitan#547: numbers of one stage known on its ranks only. Stages with only experts, only dense blocks
// or none: loads and biases of all blocks reach all ranks.
TEST(Experts, UnevenStagesOfDenseAndExpertBlocks) {
  for (const std::vector<int64_t>& stages :
       std::vector<std::vector<int64_t>>{{1, 3}, {3, 1}, {0, 4}, {4, 0}}) {
    Recipe r = on(2, 1, 1, 2);
    r.model.layers = 4;
    r.model.moe.every = 2;
    r.model.ffn = 8;
    r.model.tied = true;
    r.model.moe.bias_rate = 0.01;
    r.parallel.pp = 2;
    r.parallel.stages = stages;
    expect_equal(resolved(r, 1, 2));
  }
}

// Megatron-LM PR#7513, for experts. Tokens without a label are still routed, and one with a label on one rank
// moves all experts that it reaches.
TEST(Experts, OneValidTokenOfOneRank) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.data.pack = false;
    r.model.moe.balance_loss = 0.1;
    expect_equal(resolved(r, 2, 2), only(3, 6));
  }
}

// Megatron-LM#7452 (parts left out of the norm or summed twice). Shared experts are dense: sharded over
// tensor ranks, their gate's gradient summed over them once.
TEST(Experts, SharedExpertsAndTheirGate) {
  for (const bool gate : {false, true})
    for (const bool sequence_parallel : {false, true})
      for (const int64_t ep : {1, 4}) {
        Recipe r = on(2, 3, 4, ep);
        r.parallel.sequence_parallel = sequence_parallel;
        r.model.moe.shared_ffn = 8;
        r.model.moe.shared_gate = gate;
        expect_equal(resolved(r, 2, 1));
      }
}

// torchtitan#2058, #1750 (divergence under tp). DeepSeek-V3's router over all ranks: sigmoid scores, groups,
// biases, scale, latent attention.
TEST(Experts, GroupLimitedRouting) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.experts = 8;
    r.model.moe.score = config::RouterScore::Sigmoid;
    r.model.moe.groups = 4;
    r.model.moe.groups_kept = 2;
    r.model.moe.scale = 2.5;
    r.model.moe.bias_rate = 0.01;
    r.model.kv_heads = r.model.head_dim = 0;
    r.model.mla = {.kv_rank = 6, .q_rank = 5, .nope_dim = 3, .rope_dim = 2, .v_dim = 5};
    expect_equal(resolved(r, 2, 1));
  }
}

// Router options of Megatron and DeepSpeed: in every layout those of one rank, and with an effect.
TEST(Experts, RouterOptionsOfPeers) {
  const std::pair<const char*, void (*)(config::Moe&)> options[] = {
      {"sqrt_softplus", [](config::Moe& x) { x.score = config::RouterScore::SqrtSoftplus; }},
      {"sqrt_softplus with biases and groups",
       [](config::Moe& x) {
         x.score = config::RouterScore::SqrtSoftplus;
         x.bias_rate = 0.01, x.groups = 2, x.groups_kept = 2, x.scale = 1.5;
       }},
      {"jitter", [](config::Moe& x) { x.jitter = 0.3; }},
      {"random drops", [](config::Moe& x) { x.capacity_factor = 0.6, x.drop = config::DropPolicy::Random; }}};
  for (const auto& [name, set] : options)
    for (Recipe r : layouts()) {
      SCOPED_TRACE(fmt::format("{}, {}", tools::describe(r.parallel), name));
      Recipe plain = r;
      if (std::string(name) == "random drops") plain.model.moe.capacity_factor = 0.6;
      set(r.model.moe);
      r = resolved(r, 2, 1), plain = resolved(plain, 2, 1);
      const data::Dataset dataset = tools::training_data(r, true);
      EXPECT_NE(run(r, dataset, {}, 1).steps[0].result.loss, run(plain, dataset, {}, 1).steps[0].result.loss);
      expect_equal(r);
    }
}

// Recomputed blocks draw the same numbers again; every step draws others.
TEST(Experts, JitterIsRecomputedTheSame) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.jitter = 0.3;
    r.model.moe.capacity_factor = 0.8;
    r.model.moe.drop = config::DropPolicy::Random;
    r = resolved(r, 2, 1);
    const data::Dataset dataset = tools::training_data(r, true);
    const LayoutRun kept = run(r, dataset);
    r.memory.recompute = config::RecomputeKind::Full;
    const LayoutRun again = run(r, dataset);
    for (size_t s = 0; s < 2; ++s)
      for (size_t t = 0; t < kept.steps[s].gradients.size(); ++t)
        EXPECT_EQ(kept.steps[s].gradients[t].values, again.steps[s].gradients[t].values)
            << kept.steps[s].gradients[t].name;
  }
}

// The gradient of several balance losses is the sum of theirs, and each reports the value that it has alone.
TEST(Experts, SeveralBalanceLossesAdd) {
  const BalanceScope scopes[] = {BalanceScope::MicroBatch, BalanceScope::Sequence, BalanceScope::Global};
  const double coefficients[] = {0.5, 0.2, 0.3};
  const Recipe r = resolved(on(1, 0, 1, 1), 2, 3);
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun none = run(r, dataset, {}, 1);
  std::vector<LayoutRun> single;
  for (size_t i = 0; i < 3; ++i) {
    Recipe one = r;
    one.model.moe.balance_loss = coefficients[i];
    one.model.moe.balance_scope = scopes[i];
    single.push_back(run(one, dataset, {}, 1));
  }
  Recipe all = r;
  all.model.moe.balance_loss = coefficients[1];
  all.model.moe.balance_scope = scopes[1];
  all.model.moe.balance = {.micro_batch = coefficients[0], .sequence = 0, .global = coefficients[2]};
  const LayoutRun joint = run(all, dataset, {}, 1);
  const char* const names[] = {"micro_batch_balance_loss", "balance_loss", "global_balance_loss"};
  for (size_t i = 0; i < 3; ++i)
    for (const int block : {0, 1})
      EXPECT_NEAR(values_of(joint.steps[0].sums, fmt::format("blocks.{}.{}", block, names[i]))[0],
                  values_of(single[i].steps[0].sums, fmt::format("blocks.{}.balance_loss", block))[0], 1e-14)
          << names[i];
  double moved = 0;
  for (size_t t = 0; t < none.steps[0].gradients.size(); ++t) {
    const auto& base = none.steps[0].gradients[t].values;
    for (size_t k = 0; k < base.size(); ++k) {
      double want = base[k];
      for (const LayoutRun& one : single) want += one.steps[0].gradients[t].values[k] - base[k];
      EXPECT_NEAR(joint.steps[0].gradients[t].values[k], want, 1e-12) << none.steps[0].gradients[t].name;
      moved = std::max(moved, std::abs(want - base[k]));
    }
  }
  EXPECT_GT(moved, 1e-4);
}

TEST(Experts, SeveralBalanceLossesDoNotDependOnTheLayout) {
  for (Recipe r : layouts()) {
    SCOPED_TRACE(tools::describe(r.parallel));
    r.model.moe.balance_loss = 0.5;
    r.model.moe.balance = {.micro_batch = 0, .sequence = 0.2, .global = 0.3};
    r = resolved(r, 2, 2);
    const data::Dataset dataset = tools::training_data(r, true);
    const LayoutRun layout = run(r, dataset, {}, 1), one = run(tools::on_one_rank(r), dataset, {}, 1);
    for (const char* name :
         {"blocks.0.balance_loss", "blocks.1.sequence_balance_loss", "blocks.1.global_balance_loss"}) {
      const double there = values_of(one.steps[0].sums, name)[0];
      EXPECT_GT(there, 0);
      EXPECT_NEAR(values_of(layout.steps[0].sums, name)[0], there, 1e-12 * there) << name;
    }
    expect_equal(r);
  }
}

// ---- latent experts

struct Sizes {
  size_t experts, inner, latent, embed;
};

// A latent model is a plain one whose experts' matrices are products: gate' = gate down, up' = up down,
// down' = up_projection down. The plain model's losses and gradients, by the chain rule through those
// products, are an independent reference.
class LatentAsPlain {
 public:
  LatentAsPlain(Sizes sizes, const std::vector<tools::Tensor>& weights) : s_(sizes), weights_(weights) {}

  // The plain model's parameter `name`.
  std::vector<double> plain(const std::string& name) const {
    const size_t at = name.find("experts.");
    if (at == std::string::npos) return values_of(weights_, name);
    const std::string block = name.substr(0, at);
    const auto& w = values_of(weights_, name);
    std::vector<double> out(s_.experts * s_.inner * s_.embed);
    if (name.ends_with("experts.down.weight")) {  // [x, embed, inner] = up[embed, latent] w[x, latent, inner]
      const auto& up = values_of(weights_, block + "latent_up.weight");
      each([&](size_t x, size_t f, size_t l, size_t e) {
        out[(x * s_.embed + e) * s_.inner + f] +=
            up[e * s_.latent + l] * w[(x * s_.latent + l) * s_.inner + f];
      });
    } else {  // [x, inner, embed] = w[x, inner, latent] down[latent, embed]
      const auto& down = values_of(weights_, block + "latent_down.weight");
      each([&](size_t x, size_t f, size_t l, size_t e) {
        out[(x * s_.inner + f) * s_.embed + e] +=
            w[(x * s_.inner + f) * s_.latent + l] * down[l * s_.embed + e];
      });
    }
    return out;
  }

  // The gradient of the latent model's parameter `name` from those of the plain model.
  std::vector<double> gradient(const std::string& name, const std::vector<tools::Tensor>& plain) const {
    const size_t at = std::min(name.find("experts."), name.find("latent_"));
    if (at == std::string::npos) return values_of(plain, name);
    const std::string block = name.substr(0, at);
    const auto& down = values_of(weights_, block + "latent_down.weight");
    const auto& up = values_of(weights_, block + "latent_up.weight");
    std::vector<double> out(values_of(weights_, name).size());
    const auto into_latent = [&](const char* which) {
      const auto& d = values_of(plain, block + which);
      const auto& w = values_of(weights_, block + which);
      each([&](size_t x, size_t f, size_t l, size_t e) {
        const double g = d[(x * s_.inner + f) * s_.embed + e];
        if (name.ends_with("latent_down.weight"))
          out[l * s_.embed + e] += w[(x * s_.inner + f) * s_.latent + l] * g;
        else
          out[(x * s_.inner + f) * s_.latent + l] += g * down[l * s_.embed + e];
      });
    };
    if (name.ends_with("latent_down.weight")) {
      into_latent("experts.gate.weight");
      into_latent("experts.up.weight");
    } else if (name.ends_with("experts.gate.weight")) {
      into_latent("experts.gate.weight");
    } else if (name.ends_with("experts.up.weight")) {
      into_latent("experts.up.weight");
    } else {
      const auto& d = values_of(plain, block + "experts.down.weight");
      const auto& w = values_of(weights_, block + "experts.down.weight");
      each([&](size_t x, size_t f, size_t l, size_t e) {
        const double g = d[(x * s_.embed + e) * s_.inner + f];
        if (name.ends_with("latent_up.weight"))
          out[e * s_.latent + l] += g * w[(x * s_.latent + l) * s_.inner + f];
        else
          out[(x * s_.latent + l) * s_.inner + f] += g * up[e * s_.latent + l];
      });
    }
    return out;
  }

 private:
  template <class F>
  void each(const F& f) const {
    for (size_t x = 0; x < s_.experts; ++x)
      for (size_t i = 0; i < s_.inner; ++i)
        for (size_t l = 0; l < s_.latent; ++l)
          for (size_t e = 0; e < s_.embed; ++e) f(x, i, l, e);
  }
  const Sizes s_;
  const std::vector<tools::Tensor>& weights_;
};

TEST(Experts, LatentOnesAreProductsOfMatrices) {
  Recipe r = on(1, 0, 1, 1);
  r.model.moe.latent = 3;
  r.model.moe.shared_ffn = 5;
  r.model.init_stddev = 0.3;  // so that no gradient is small
  r = resolved(r, 2, 1);
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun latent = run(r, dataset, {}, 1);
  const LatentAsPlain reference({4, 8, 3, static_cast<size_t>(r.model.embed)}, latent.initial);
  Recipe other = r;
  other.model.moe.latent = 0;
  const auto prepare = [&](train::Rank& rank) {
    rank.visit(program::holds_weights,
               [&](const train::Rank::Piece& piece, const layout::GlobalIndex& global) {
                 const std::vector<double> values = reference.plain(piece.segment->name);
                 rank.write(piece, [&](std::byte* data) {
                   for (int64_t i = 0; i < piece.count; ++i) {
                     const int64_t g = global(piece.first + i);
                     reinterpret_cast<double*>(data)[i] = g < 0 ? 0 : values.at(static_cast<size_t>(g));
                   }
                 });
               });
    rank.weights_changed();
  };
  const LayoutRun plain =
      tools::run_layout(other, tools::training_batches(other, dataset), {.steps = 1, .prepare = prepare});
  EXPECT_NEAR(latent.steps[0].result.loss, plain.steps[0].result.loss, 1e-13);
  for (const tools::Tensor& t : latent.steps[0].gradients) {
    const std::vector<double> want = reference.gradient(t.name, plain.steps[0].gradients);
    ASSERT_EQ(t.values.size(), want.size()) << t.name;
    double size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(t.values[i], want[i], 1e-12) << t.name << " " << i;
      size = std::max(size, std::abs(want[i]));
    }
    EXPECT_GT(size, 1e-6) << t.name;
  }
}

TEST(Experts, LatentOnesDoNotDependOnTheLayout) {
  for (Recipe r : layouts())
    for (const bool biases : {false, true}) {
      SCOPED_TRACE(tools::describe(r.parallel));
      r.model.moe.latent = 3;
      r.model.moe.bias = biases;
      r.model.moe.shared_ffn = 8;
      expect_equal(resolved(r, 2, 1));
    }
}

}  // namespace
}  // namespace quintet::tests
