// The central invariant: the layout never changes the mathematics. Random layouts of tiny models in f64:
// every number of every step against one rank, and on every rank the planned peak against the measured one.
//
// QUINTET_FUZZ_LAYOUTS (0: endless) and QUINTET_FUZZ_SEED (make fuzz) select a longer or another run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "config/axis_order.h"
#include "config/names.h"
#include "config/validate.h"
#include "equivalence/random_layout.h"

namespace quintet::tests {
namespace {

constexpr int64_t kLayouts = 400, kSeed = 5001;
constexpr int64_t kNarrowLayouts = 60, kNarrowSteps = 2;

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoll(text) : otherwise;
}

// Case i is drawn from seed + i, so that one number reproduces any of them.
Case case_of(int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  return random_case(random);
}

// Types of everything that [precision] names, except those of quantised values, which cases draw themselves.
config::Precision random_precision(std::mt19937_64& random) {
  const auto chance = [&](uint64_t in, uint64_t of) { return random() % of < in; };
  constexpr base::DType kTypes[] = {base::DType::F32, base::DType::BF16, base::DType::F16};
  config::Precision p = config::Precision::of(kTypes[random() % std::size(kTypes)]);
  if (chance(1, 3)) p.moments = base::DType::BF16;
  if (chance(1, 3)) p.reduce = base::DType::BF16;
  if (p.compute == base::DType::BF16) {
    if (chance(1, 3)) p.master = config::Master::Split;
    if (chance(1, 4)) p.gradients = p.reduce = base::DType::BF16;
  }
  return p;
}

// A layout in random types instead of f64.
Case narrow_case_of(int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  for (;;) {
    Case c = random_case(random);
    const config::Precision p = random_precision(random);
    if (c.recipe.precision.quantises()) continue;
    c.recipe.precision = p;
    c.steps = std::min(c.steps, kNarrowSteps);
    if (auto legal_case = legal(std::move(c))) return *legal_case;
  }
}

void compare_layouts(int64_t usual, Case (*draw)(int64_t seed)) {
  const int64_t layouts = setting("QUINTET_FUZZ_LAYOUTS", usual), seed = setting("QUINTET_FUZZ_SEED", kSeed);
  const bool endless = layouts == 0, talk = endless || layouts > usual;
  int64_t failures = 0;
  for (int64_t i = 0; (endless || i < layouts) && failures < 3; ++i) {
    if (talk && i % 100 == 0) {
      fmt::print("{} layouts, {} failures; now from seed {}\n", i, failures, seed + i);
      std::fflush(stdout);
    }
    const Case c = draw(seed + i);
    const auto failure = failure_of(c);
    if (!failure) continue;
    ++failures;
    const Case small = shrink(c);
    const auto reason = failure_of(small);
    ADD_FAILURE() << "seed " << seed + i
                  << ": the layout differs from one rank (QUINTET_FUZZ_SEED=" << seed + i
                  << " QUINTET_FUZZ_LAYOUTS=1 brings it back). The smallest that does:\n\n"
                  << to_text(small) << "\n"
                  << reason.value_or(*failure);
  }
}

TEST(Fuzz, RandomLayoutsComputeWhatOneRankComputes) { compare_layouts(kLayouts, case_of); }

// In f32 and 16 bits, against the bounds of tools/verify.h, which grow with the root of the longest chain of
// ops and of the longest sum. The first step is the sharp one: weights are equal.
TEST(Fuzz, RandomLayoutsStayWithinTheBoundsOfTheirTypes) { compare_layouts(kNarrowLayouts, narrow_case_of); }

TEST(Fuzz, NarrowLayoutsHaveEveryType) {
  std::map<std::string, int> seen;
  for (int64_t i = 0; i < kNarrowLayouts; ++i) {
    const config::Precision p = narrow_case_of(kSeed + i).recipe.precision;
    ++seen["compute " + std::string(base::to_string(p.compute))];
    seen["bf16 moments"] += p.moments == base::DType::BF16;
    seen["bf16 on the wire"] += p.reduce == base::DType::BF16;
    seen["bf16 gradients"] += p.gradients == base::DType::BF16;
    seen["split masters"] += p.split_master();
  }
  for (const char* kind : {"compute f32", "compute bf16", "compute f16", "bf16 moments", "bf16 on the wire",
                           "bf16 gradients", "split masters"})
    EXPECT_GT(seen[kind], 0) << kind;
}

using Seen = std::map<std::string, int>;

void see_order(const config::Parallel& p, Seen& seen) {
  using config::MeshAxis;
  std::vector<MeshAxis> used;  // innermost first
  for (const config::AxisSpan& span : config::axis_spans(p))
    if (span.size > 1) used.push_back(span.axis);
  const auto place = [&](MeshAxis axis) { return std::find(used.begin(), used.end(), axis) - used.begin(); };
  const auto last = static_cast<std::ptrdiff_t>(used.size());
  const auto inside = [&](MeshAxis a, MeshAxis b) { return place(a) < place(b) && place(b) < last; };
  seen["pp inside tp"] += inside(MeshAxis::Pp, MeshAxis::Tp);
  seen["pp between"] += place(MeshAxis::Pp) > 0 && place(MeshAxis::Pp) < last - 1;
  seen["dp_shard inside tp, zero 3"] += inside(MeshAxis::DpShard, MeshAxis::Tp) && p.zero == 3;
  seen["dp_shard inside cp, zero 3"] += inside(MeshAxis::DpShard, MeshAxis::Cp) && p.zero == 3;
  seen["dp_replicate inside dp_shard"] += inside(MeshAxis::DpReplicate, MeshAxis::DpShard);
  seen["tp outside all of dp"] += inside(MeshAxis::DpShard, MeshAxis::Tp) &&
                                  (inside(MeshAxis::DpReplicate, MeshAxis::Tp) || p.dp_replicate == 1);
  const config::ExpertSpans at = config::expert_spans(p);
  const int64_t copies = p.dp() * p.cp * p.tp / (p.ep * p.etp);
  seen["copies of experts inside"] += p.ep > 1 && copies > 1 && at.copies < at.ep;
  seen["etp outside ep"] += p.ep > 1 && p.etp > 1 && at.etp > at.ep;
  seen["resharded in another order"] +=
      p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks &&
      p.order != config::Parallel{}.order;
}

void see_context(const config::Recipe& r, Seen& seen) {
  const config::Parallel& p = r.parallel;
  const config::Model& m = r.model;
  if (p.cp > 1) {
    ++seen[fmt::format("cp by {}", config::name_of(p.cp_method))];
    ++seen[fmt::format("cp {}", p.cp)];
    ++seen[fmt::format("cp with zero {}", p.zero)];
    ++seen[r.data.pack ? "cp with packed documents" : "cp with plain text"];
    seen["cp with ulysses 2 of 4 or more"] += p.ulysses == 2;
    seen["cp with a sliding window"] += m.sliding_window > 0;
    seen["cp with dropout"] += m.dropout > 0;
    seen["cp with tp"] += p.tp > 1;
    seen["cp with fewer KV heads than tp"] += m.kv_heads < p.tp;
    seen["cp with pp"] += p.pp > 1;
    seen["cp with hsdp"] += p.dp_replicate > 1 && p.zero == 3;
    seen["cp with recompute"] += r.memory.recompute != config::RecomputeKind::None;
    const bool mixed =
        p.cp_method_windowed != config::ContextMethod::Auto && p.cp_method_windowed != p.cp_method;
    seen["another method with a window"] += mixed;
    seen["another method with a window, in some blocks"] +=
        mixed && (m.full_attention_every > 1 || !m.full_attention_layers.empty());
    seen["ring with pp"] += p.pp > 1 && p.cp_method == config::ContextMethod::Ring;
  }
  if (m.mla.kv_rank > 0) {
    ++seen["latent attention"];
    seen["latent attention with cp"] += p.cp > 1;
    seen["latent attention with tp"] += p.tp > 1;
    seen["latent attention without q_rank"] += m.mla.q_rank == 0;
  }
  seen["fit"] += r.memory.recompute == config::RecomputeKind::Fit;
  seen["chunks of blocks recomputed"] += r.memory.recompute_chunk > 1;
  seen["chunks of blocks recomputed, with pp"] += r.memory.recompute_chunk > 1 && p.pp > 1;
  seen["chunks of blocks recomputed, with zero 3"] += r.memory.recompute_chunk > 1 && p.zero == 3;
  seen["chunks of blocks recomputed, with experts"] += r.memory.recompute_chunk > 1 && m.moe.experts > 0;
  seen["other ops in every block"] += !r.memory.recompute_layers.empty();
  see_order(p, seen);
}

void see_experts(const config::Recipe& r, Seen& seen) {
  const config::Parallel& p = r.parallel;
  const config::Moe& x = r.model.moe;
  if (x.experts == 0) return;
  ++seen[fmt::format("experts scored by {}", config::name_of(x.score))];
  ++seen[fmt::format("experts ordered by {}", config::name_of(x.order))];
  ++seen[fmt::format("experts with zero {}", p.zero)];
  if (x.balance_loss > 0) ++seen[fmt::format("balance loss over {}", config::name_of(x.balance_scope))];
  if (x.capacity_factor > 0) {
    ++seen[fmt::format("drop by {}", config::name_of(x.drop))];
    seen["capacity of several sequences"] += x.capacity_group > 1;
    seen["padded"] += x.pad;
    seen["padded with ep"] += x.pad && p.ep > 1;
    seen["dropped with cp"] += p.cp > 1;
    seen["dropped with tp"] += p.tp > 1;
  }
  seen["jitter"] += x.jitter > 0;
  seen["jitter with tp"] += x.jitter > 0 && p.tp > 1;
  seen["jitter with cp"] += x.jitter > 0 && p.cp > 1;
  seen["jitter with pp"] += x.jitter > 0 && p.pp > 1;
  seen["jitter with recompute"] += x.jitter > 0 && r.memory.recompute != config::RecomputeKind::None;
  seen["latent experts with ep"] += x.latent > 0 && p.ep > 1;
  seen["latent experts with etp"] += x.latent > 0 && p.etp > 1;
  seen["latent experts with tp"] += x.latent > 0 && p.tp > 1;
  seen["latent experts with pp"] += x.latent > 0 && p.pp > 1;
  seen["latent experts with biases"] += x.latent > 0 && x.bias;
  const bool random = x.capacity_factor > 0 && x.drop == config::DropPolicy::Random;
  seen["random drops with cp"] += random && p.cp > 1;
  seen["random drops with ep"] += random && p.ep > 1;
  const int losses = (x.balance_over(config::BalanceScope::MicroBatch) > 0) +
                     (x.balance_over(config::BalanceScope::Sequence) > 0) +
                     (x.balance_over(config::BalanceScope::Global) > 0);
  seen["two balance losses"] += losses == 2;
  seen["three balance losses"] += losses == 3;
  const bool passes = x.receive_bound > 0 && x.receive_bound < 1 && p.ep > 1 && !x.pad;
  seen["passes"] += passes;
  seen["passes with etp"] += passes && p.etp > 1;
  seen["passes with pp"] += passes && p.pp > 1;
  seen["passes with zero 3"] += passes && p.zero == 3;
  seen["passes with recompute"] += passes && r.memory.recompute != config::RecomputeKind::None;
  seen["passes with biases on experts"] += passes && x.bias;
  ++seen[x.normalise ? "weights normalised" : "weights as they are"];
  seen["weights scaled"] += x.scale != 1;
  seen["groups of experts"] += x.groups > 1 && x.groups_kept < x.groups;
  seen["z loss"] += x.z_loss > 0;
  seen["biases"] += x.bias_rate > 0;
  seen["biases with pp"] += x.bias_rate > 0 && p.pp > 1;
  seen["forced balance"] += x.force_balance;
  seen["shared experts"] += x.shared_ffn > 0 && !x.shared_gate;
  seen["shared experts with a gate"] += x.shared_gate;
  seen["biases on experts"] += x.bias;
  seen["biases on experts with etp"] += x.bias && p.etp > 1;
  seen["clamped experts"] += r.model.activation == config::Activation::Clamped;
  seen["scores on experts' inputs"] += x.scale_input;
  seen["first blocks dense"] += x.first_dense > 0;
  seen["every other block dense"] += x.every > 1;
  seen["ep"] += p.ep > 1;
  seen["ep above dp"] += p.ep > p.dp();
  seen["ep with etp"] += p.ep > 1 && p.etp > 1;
  seen["etp alone"] += p.ep == 1 && p.etp > 1;
  seen["ep with cp"] += p.ep > 1 && p.cp > 1;
  seen["ep with tp and no sequence parallel"] += p.ep > 1 && p.tp > 1 && !p.sequence_parallel;
  seen["ep with pp"] += p.ep > 1 && p.pp > 1;
  seen["ep with hsdp"] += p.ep > 1 && p.dp_replicate > 1 && p.zero == 3;
  seen["ep with recompute"] += p.ep > 1 && r.memory.recompute != config::RecomputeKind::None;
  seen["ep with latent attention"] += p.ep > 1 && r.model.mla.kv_rank > 0;
  seen["ep of one expert each"] += p.ep == x.experts;
  seen["all five axes"] += p.pp > 1 && p.dp() > 1 && p.cp > 1 && p.tp > 1 && p.ep > 1;
  for (const config::ParamGroup& g : r.optimizer.groups)
    seen["frozen experts or router"] += !g.update && (g.match.find("experts") != std::string::npos ||
                                                      g.match.find("router") != std::string::npos);
}

void see_quantised(const config::Recipe& r, Seen& seen) {
  if (!r.precision.quantises()) return;
  const config::Parallel& p = r.parallel;
  ++seen[fmt::format("linears in {}", config::name_of(r.precision.linear))];
  ++seen[fmt::format("quantised with zero {}", p.zero)];
  seen["quantised with tp"] += p.tp > 1;
  seen["quantised with sequence parallel"] += p.sequence_parallel;
  seen["quantised with fewer KV heads than tp"] += r.model.kv_heads < p.tp;
  seen["quantised with cp"] += p.cp > 1;
  seen["quantised with pp"] += p.pp > 1;
  seen["quantised with a split backward pass"] += p.pp > 1 && p.schedule.starts_with("zb");
  seen["quantised with experts"] += r.model.moe.experts > 0;
  seen["quantised with latent attention"] += r.model.mla.kv_rank > 0;
  seen["quantised with full recompute"] += r.memory.recompute == config::RecomputeKind::Full;
  seen["quantised with selective recompute"] += r.memory.recompute == config::RecomputeKind::Selective;
  seen["quantised with accumulation"] += r.batch.accumulation > 1;
  seen["quantised attention only"] += !r.precision.fp8_match.empty();
  seen["quantised with frozen weights"] += std::any_of(r.optimizer.groups.begin(), r.optimizer.groups.end(),
                                                       [](const config::ParamGroup& g) { return !g.update; });
  seen["quantised head"] += r.precision.fp8_head;
  seen["quantised head under tp"] += r.precision.fp8_head && p.tp > 1;
  seen["quantised head in chunks"] += r.precision.fp8_head && r.loss.chunk > 0;
}

void see_groups(const config::Recipe& r, Seen& seen) {
  const config::Optimizer& o = r.optimizer;
  for (const config::ParamGroup& g : o.groups) {
    seen["frozen with zero 3"] += !g.update && r.parallel.zero == 3;
    seen["a group's lr"] += g.lr.has_value();
    seen["a group's weight decay"] += g.weight_decay.has_value();
    seen["a group of another optimizer"] += g.kind && *g.kind != o.kind;
    seen["two optimizers with zero 3"] += g.kind && *g.kind != o.kind && r.parallel.zero == 3;
    seen["two optimizers with pp"] += g.kind && *g.kind != o.kind && r.parallel.pp > 1;
    seen["two optimizers with tp"] += g.kind && *g.kind != o.kind && r.parallel.tp > 1;
  }
  if (!o.uses(config::OptimizerKind::Muon)) return;
  const config::Parallel& p = r.parallel;
  ++seen[fmt::format("muon scaled by {}", config::name_of(o.muon.scale))];
  seen["muon with zero 0 and copies"] += p.zero == 0 && p.dp() * p.cp > 1;
  seen["muon with zero 1 or 2"] += (p.zero == 1 || p.zero == 2) && p.dp_shard * p.cp > 1;
  seen["muon with zero 3"] += p.zero == 3 && p.dp_shard * p.cp > 1;
  seen["muon with hsdp"] += p.zero == 3 && p.dp_replicate > 1;
  seen["muon with tp"] += p.tp > 1;
  seen["muon with tp and zero"] += p.tp > 1 && p.zero > 0 && p.dp_shard * p.cp > 1;
  seen["muon with pp"] += p.pp > 1;
  seen["muon with ep"] += p.ep > 1;
  seen["muon with etp"] += p.etp > 1;
}

// The generator must reach every feature: one that is never drawn would always pass.
TEST(Fuzz, GeneratorCoversTheAxes) {
  Seen seen;
  const int64_t seed = setting("QUINTET_FUZZ_SEED", kSeed);
  for (int64_t i = 0; i < kLayouts; ++i) {
    const Case c = case_of(seed + i);
    const config::Parallel& p = c.recipe.parallel;
    const config::Model& m = c.recipe.model;
    seen["zero " + std::to_string(p.zero)] += p.dp_shard * p.cp > 1;
    if (p.pp > 1) {
      ++seen["schedule " + p.schedule];
      ++seen["pp " + std::to_string(p.pp)];
      seen["pp with zero " + std::to_string(p.zero)] += p.dp_shard > 1;
    }
    seen["pp with tp"] += p.pp > 1 && p.tp > 1;
    seen["pp with sequence parallel"] += p.pp > 1 && p.sequence_parallel;
    seen["pp with tied weights"] += p.pp > 1 && m.tied;
    seen["pp with recompute"] += p.pp > 1 && c.recipe.memory.recompute != config::RecomputeKind::None;
    seen["pp with poison"] += p.pp > 1 && c.poison;
    seen["pp with dropout"] += p.pp > 1 && m.dropout > 0;
    seen["stages by hand"] += !p.stages.empty();
    seen["a stage without blocks"] += std::find(p.stages.begin(), p.stages.end(), 0) != p.stages.end();
    seen["fewer micro-batches than stages"] += c.recipe.batch.accumulation < p.pp;
    seen["three chunks"] += p.chunks > 2;
    const bool interleaved = p.schedule == "interleaved";
    seen["groups of micro-batches"] += interleaved && p.micro_group > p.pp;
    seen["micro-batches left after groups"] += interleaved && c.recipe.batch.accumulation % p.pp != 0;
    seen["one gradient block"] += p.gradient_blocks == 1;
    seen["two gradient blocks with pp"] += p.gradient_blocks == 2 && p.zero >= 2 && p.pp > 1;
    seen["recompute of the first blocks"] += c.recipe.memory.recompute_first > 0;
    seen["least capacity"] += m.moe.min_capacity > 1;
    seen["hysteresis"] += c.recipe.precision.loss_scale_hysteresis > 1;
    const bool reshards = p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks;
    const bool near = reshards && p.reshard_after_forward.ranks * p.tp > p.ep * p.etp;
    seen["experts that reshard"] += m.moe.experts > 0 && near;
    seen["experts that reshard with ep"] += m.moe.experts > 0 && near && p.ep > 1;
    seen["more than 16 ranks"] += p.world() > 16;
    seen["hsdp"] += p.dp_replicate > 1 && p.zero == 3;
    const bool joins = p.group.kind == config::Grouping::Kind::Blocks && p.group.size > 1;
    const bool shares = p.zero_replicas > 0, persists = p.persist_below.value > 0;
    seen["blocks in groups"] += joins;
    seen["blocks in groups with zero 0"] += joins && p.zero == 0;
    seen["blocks in groups with zero 3"] += joins && p.zero == 3;
    seen["blocks in groups with pp"] += joins && p.pp > 1;
    seen["blocks in groups with experts"] += joins && m.moe.experts > 0;
    seen["groups by bytes"] += p.group.kind == config::Grouping::Kind::Bytes;
    seen["groups by bytes with zero 3"] += p.group.kind == config::Grouping::Kind::Bytes && p.zero == 3;
    for (int64_t zero = 1; zero <= 3; ++zero)
      seen[fmt::format("replicas share state with zero {}", zero)] += shares && p.zero == zero;
    seen["replicas share state with groups"] += shares && joins;
    seen["replicas share state with pp"] += shares && p.pp > 1;
    seen["replicas share state with experts"] += shares && m.moe.experts > 0;
    seen["replicas share state with muon"] += shares && c.recipe.optimizer.uses(config::OptimizerKind::Muon);
    seen["replicas share state with accumulation"] += shares && c.recipe.batch.accumulation > 1;
    seen["groups that persist"] += persists;
    seen["groups that persist with pp"] += persists && p.pp > 1;
    seen["saved rows divided"] += c.recipe.memory.split_saved;
    seen["groups by name"] += !p.group_match.empty();
    seen["kept by name"] += !p.keep_match.empty();
    seen["whole by name"] += !p.persist_match.empty();
    seen["whole by name with pp"] += !p.persist_match.empty() && p.pp > 1;
    seen["outputs divided by name"] += !p.tp_column.empty();
    seen["inputs divided by name"] += !p.tp_row.empty();
    seen["weights whole on tensor ranks"] += !p.tp_replicate.empty();
    seen["the same with sequence parallel"] += !p.tp_replicate.empty() && p.sequence_parallel;
    seen["a limit on gathered parameters"] += p.gathered_limit.value > 0;
    seen["experts kept, others not"] += p.reshard_experts == config::ReshardExperts::Never &&
                                        p.reshard_after_forward.kind != config::ReshardAfterForward::Kind::No;
    seen["reshard to ranks"] += p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks;
    seen["kept gathered"] += p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::No;
    seen["sequence parallel"] += p.sequence_parallel;
    seen["fewer KV heads than tp"] += m.kv_heads < p.tp;
    seen["ragged vocabulary"] += m.vocab % p.tp != 0;
    seen["tied under tp"] += m.tied && p.tp > 1;
    seen["dropout under tp"] += m.dropout > 0 && p.tp > 1;
    seen["dropout under sequence parallel"] += m.dropout > 0 && p.sequence_parallel;
    seen["accumulation with zero 2"] += c.recipe.batch.accumulation > 1 && p.zero == 2;
    seen["accumulation with zero 3"] += c.recipe.batch.accumulation > 1 && p.zero == 3;
    seen["chunked loss under tp"] += c.recipe.loss.chunk > 0 && p.tp > 1;
    see_groups(c.recipe, seen);
    see_quantised(c.recipe, seen);
    seen["recomputed"] += c.recipe.memory.recompute == config::RecomputeKind::Full;
    seen["recomputed in part with zero 3"] +=
        c.recipe.memory.recompute == config::RecomputeKind::Selective && p.zero == 3;
    ++seen[fmt::format("optimizer {}", config::name_of(c.recipe.optimizer.kind))];
    const bool stochastic = c.recipe.precision.moments_rounding == config::MomentsRounding::Stochastic;
    seen["stochastic moments"] += stochastic;
    seen["stochastic moments with tp"] += stochastic && p.tp > 1;
    seen["stochastic moments with ep and etp"] += stochastic && p.ep * p.etp > 1;
    seen["stochastic moments with zero 3"] += stochastic && p.zero == 3;
    const bool grows = !c.recipe.batch.ramp.empty();
    seen["growing batch"] += grows;
    seen["growing batch with pp"] += grows && p.pp > 1;
    seen["growing batch with a balance loss"] += grows && m.moe.experts > 0 && m.moe.balance_loss > 0;
    seen["growing batch with a z-loss"] += grows && m.moe.experts > 0 && m.moe.z_loss > 0;
    seen["rates that follow the batch"] += c.recipe.optimizer.lr_scaling.rule != config::LrScalingRule::None;
    const bool ramps = c.recipe.optimizer.weight_decay_ramp.kind != config::RampKind::Constant;
    seen["decay ramp"] += ramps;
    for (const auto& [kind, name] : config::Names<config::OptimizerKind>::kTable)
      if (kind != config::OptimizerKind::Custom)
        seen[fmt::format("decay ramp with {}", name)] += ramps && c.recipe.optimizer.uses(kind);
    const bool adafactor = c.recipe.optimizer.kind == config::OptimizerKind::Adafactor;
    seen["adafactor with zero 3"] += adafactor && p.zero == 3;
    seen["adafactor with tp"] += adafactor && p.tp > 1;
    seen["adafactor with pp and tied weights"] += adafactor && p.pp > 1 && m.tied;
    seen["adafactor with ep and etp"] += adafactor && p.ep * p.etp > 1;
    seen["relative adafactor"] += adafactor && c.recipe.optimizer.adafactor.relative;
    const bool eight_bit = c.recipe.optimizer.kind == config::OptimizerKind::AdamW8bit;
    seen["8-bit with zero 3"] += eight_bit && p.zero == 3;
    seen["8-bit with pp"] += eight_bit && p.pp > 1;
    seen["8-bit with tp"] += eight_bit && p.tp > 1;
    seen["8-bit with ep and etp"] += eight_bit && p.ep * p.etp > 1;
    seen["ema"] += c.recipe.optimizer.ema > 0;
    seen["ema with zero 3"] += c.recipe.optimizer.ema > 0 && p.zero == 3;
    seen["ema with pp and tied weights"] += c.recipe.optimizer.ema > 0 && p.pp > 1 && m.tied;
    seen["clipped by the largest element"] += c.recipe.optimizer.clip == config::ClipKind::Inf;
    seen["optimizer sgd with nesterov"] += c.recipe.optimizer.nesterov;
    seen["qk norm under tp"] += m.qk_norm && p.tp > 1;
    seen["qkv bias under tp"] += m.qkv_bias && p.tp > 1;
    seen["norms of all heads under tp"] += m.qk_norm_over == config::QkNormOver::AllHeads && p.tp > 1;
    seen["norms after the parts under sp"] += m.norms != config::NormPlaces::Pre && p.sequence_parallel;
    seen["norm offset with recompute"] +=
        m.norm_offset > 0 && c.recipe.memory.recompute != config::RecomputeKind::None;
    seen["soft cap of attention under cp"] += m.attention_soft_cap > 0 && p.cp > 1;
    seen["soft cap of logits under tp"] += m.logit_soft_cap > 0 && p.tp > 1;
    seen["blocks with and without a window"] += m.full_attention_every == 2 && m.layers > 1;
    seen["heads rotated in part"] += m.rotary_dim > 0;
    seen["gelu gates under tp"] += m.activation == config::Activation::Gelu && p.tp > 1;
    seen["neox under tp"] += m.family == config::Family::Neox && p.tp > 1;
    const bool encoder = m.family == config::Family::Bert;
    seen["encoder under tp"] += encoder && p.tp > 1;
    seen["encoder under cp"] += encoder && p.cp > 1;
    seen["encoder under pp"] += encoder && p.pp > 1;
    seen["encoder with zero 3"] += encoder && p.zero == 3;
    seen["encoder with a ragged vocabulary"] += encoder && m.vocab % p.tp != 0;
    seen["encoder with documents"] += encoder && c.recipe.data.pack;
    const bool predicts = m.mtp.layers > 0;
    seen["multi-token prediction under pp, untied"] += predicts && p.pp > 1 && !m.tied;
    seen["multi-token prediction under pp, tied"] += predicts && p.pp > 1 && m.tied;
    seen["multi-token prediction placed by hand"] +=
        predicts && std::accumulate(p.stages.begin(), p.stages.end(), int64_t{0}) == m.layers + 1;
    seen["multi-token prediction under tp"] += predicts && p.tp > 1;
    seen["multi-token prediction under cp"] += predicts && p.cp > 1;
    seen["multi-token prediction with zero 3"] += predicts && p.zero == 3;
    seen["multi-token prediction with experts"] += predicts && p.ep > 1;
    seen["multi-token prediction with chunked loss"] += predicts && c.recipe.loss.chunk > 0;
    seen["one token"] += c.mask == MaskKind::OneToken && p.dp() > 1;
    seen["16 ranks"] += p.world() == 16;
    seen["packed"] += c.recipe.data.pack;
    seen["poison"] += c.poison;
    seen["prefetch 0"] += p.prefetch == 0;
    seen["prefetch 2 or more"] += p.prefetch > 1;
    seen["odd sequence"] += c.recipe.data.seq_len % 2 != 0;
    seen["one head"] += m.heads == 1;
    see_context(c.recipe, seen);
    see_experts(c.recipe, seen);
  }
  for (const std::string_view name : config::pipeline_schedules())
    EXPECT_GE(seen[fmt::format("schedule {}", name)], 2) << name;
  for (const auto& [feature, count] : seen) EXPECT_GE(count, 2) << feature;
}

}  // namespace
}  // namespace quintet::tests
