#include "equivalence/random_recipe.h"

#include <algorithm>
#include <vector>

#include "config/validate.h"

namespace quintet::tests {

using config::BalanceScope;
using config::ContextMethod;
using config::Family;
using config::OptimizerKind;
using config::Recipe;
using config::ReshardAfterForward;
using config::RopeScalingKind;

namespace {

class Generator {
 public:
  explicit Generator(std::mt19937_64& random) : random_(random) {}

  // Each part reads what the previous parts have drawn.
  Case draw() {
    Case c;
    Recipe& r = c.recipe;
    r.name = "fuzz";
    r.precision = config::Precision::of(base::DType::F64);
    r.run.steps = 8;
    r.run.seed = pick(0, 1 << 20);
    const bool experts = chance(1, 2);
    axes(r.parallel);
    pipeline(r.parallel);
    if (experts) expert_axes(r.parallel, r.model.moe);
    sharding(r.parallel);
    model(r);
    if (r.parallel.pp > 1) stages(r);
    batch(r);
    if (experts) moe(r);
    r.loss.chunk = of({0, 0, 1, 3, 7, 16});
    memory(c);
    optimizer(r);
    c.mask = static_cast<MaskKind>(of({0, 1, 1, 2, 3}));
    c.poison = chance(1, 3);
    c.steps = 2;
    if (chance(1, 4)) {
      r.precision.loss_scale.dynamic = true;
      r.precision.loss_scale_start = 256;
      r.precision.loss_scale_window = pick(1, 2);
    }
    // Last, so that what is drawn above does not depend on the set of optimizers.
    if (r.optimizer.kind == OptimizerKind::Sgd)
      r.optimizer.nesterov = r.optimizer.momentum > 0 && chance(1, 2);
    else
      r.optimizer.kind = any_optimizer();
    if (chance(1, 5)) ratio_optimizer(r.optimizer);
    groups(r);
    if (chance(1, 5)) r.optimizer.ema = 0.75;
    if (r.optimizer.clip_norm > 0 && chance(1, 4)) r.optimizer.clip = config::ClipKind::Inf;
    narrow_moments(r);
    if (r.optimizer.kind == OptimizerKind::AdamW && r.optimizer.groups.empty() &&
        r.precision.moments_rounding == config::MomentsRounding::Nearest && chance(1, 2))
      adafactor(r.optimizer);
    if (r.optimizer.weight_decay > 0 && chance(1, 2))
      r.optimizer.weight_decay_ramp = {chance(1, 2) ? config::RampKind::Linear : config::RampKind::Cosine,
                                       0.5, 3};
    std::mt19937_64 own = random_;  // a copy: everything else is drawn as it was without these
    Generator more(own);
    more.more_variations(r.model);
    if (more.chance(1, 4)) more.quantised_linears(r);
    if (r.batch.accumulation > 1 && more.chance(1, 3)) more.smaller_steps(r);
    // Several passes in every step, some, or seldom more than one.
    if (experts && more.chance(2, 3))
      r.model.moe.receive_bound = std::array{0.2, 0.6, 1.0, 1.5}[static_cast<size_t>(more.pick(0, 3))];
    if (r.parallel.zero >= 2 && more.chance(1, 3)) r.parallel.gradient_blocks = 1;
    more.pipeline_groups(r);
    if (experts && more.chance(1, 2)) more.reshard_experts(r);
    if (r.memory.recompute == config::RecomputeKind::Full && r.memory.recompute_every == 1 &&
        more.chance(1, 2))
      r.memory.recompute_first = more.pick(1, r.model.layers);
    if (r.model.moe.capacity_factor > 0 && more.chance(1, 3)) r.model.moe.min_capacity = more.pick(2, 4);
    if (r.precision.loss_scale.dynamic && more.chance(1, 3)) {
      r.precision.loss_scale_hysteresis = 2;
      r.precision.loss_scale_min = 256;
    }
    more.last_variations(r.model);
    if (experts) more.expert_variations_of_peers(r.model);
    if (!experts && more.chance(1, 6)) more.encoder(r);
    const auto vary = [&](auto&& how) {  // as far as the rules allow
      Recipe varied = r;
      how(varied);
      varied.batch.global = varied.batch.micro * varied.batch.accumulation * varied.parallel.dp();
      if (config::problems_of(varied).empty()) r.parallel = varied.parallel;
    };
    if (more.chance(1, 2)) vary([&](Recipe& v) { more.axis_order(v); });
    if (r.parallel.cp > 1 && r.model.sliding_window > 0) vary([&](Recipe& v) { more.windowed_method(v); });
    if (r.memory.recompute == config::RecomputeKind::Selective && more.chance(1, 2)) more.layers_recompute(r);
    if (r.memory.recompute == config::RecomputeKind::Full && r.memory.recompute_every == 1 &&
        r.memory.recompute_first == 0 && r.model.layers > 1 && more.chance(2, 3))
      r.memory.recompute_chunk = more.pick(2, r.model.layers);
    more.grouping(r);
    if (r.precision.quantises() && more.chance(1, 2)) more.block_scales(r);
    more.patterns(r);
    if (r.model.mtp.layers > 0 && r.parallel.pp > 1 && more.chance(2, 3)) more.place_prediction(r);
    return c;
  }

 private:
  void narrow_moments(Recipe& r) {
    config::Optimizer& o = r.optimizer;
    if (chance(1, 6)) {
      r.precision.moments_rounding = config::MomentsRounding::Stochastic;
    } else if (o.kind == OptimizerKind::AdamW && r.model.mla.kv_rank == 0 && chance(1, 3)) {
      o.kind = OptimizerKind::AdamW8bit;
      o.block_size = 8;
      if (r.parallel.tp * r.parallel.ep * r.parallel.etp > 1)
        whole_blocks(r);
      else
        o.block_size = of({8, 16, 64});
    }
  }

  // Sizes of which tensor and expert ranks hold whole blocks of 8.
  void whole_blocks(Recipe& r) {
    config::Model& m = r.model;
    const config::Parallel& p = r.parallel;
    m.head_dim = 8;
    m.embed = m.family == Family::Gpt2 ? m.heads * m.head_dim : of({16, 24});
    if (m.ffn > 0) m.ffn = 8 * p.tp * pick(1, 2);
    if (m.moe.experts > 0) m.moe.ffn = 8 * p.etp;
    if (m.moe.shared_ffn > 0) m.moe.shared_ffn = 8 * p.tp;
  }

  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  int64_t of(const std::vector<int64_t>& list) {
    return list[static_cast<size_t>(pick(0, static_cast<int64_t>(list.size()) - 1))];
  }
  bool chance(int64_t a, int64_t of) { return pick(1, of) <= a; }
  int64_t divisor_of(int64_t n) {
    std::vector<int64_t> list;
    for (int64_t d = 1; d <= n; ++d)
      if (n % d == 0) list.push_back(d);
    return of(list);
  }

  // Small worlds more often than large ones: most bugs need few ranks.
  void axes(config::Parallel& p) {
    const int64_t most = of({4, 8, 8, 8, 12, 16, 16, 32});
    do {
      p.pp = of({1, 1, 1, 2, 2, 3, 4});
      p.dp_replicate = of({1, 1, 1, 2, 3});
      p.dp_shard = of({1, 1, 2, 2, 3, 4, 8});
      p.cp = of({1, 1, 2, 2, 3, 4, 8});
      p.tp = of({1, 1, 2, 2, 3, 4, 8});
    } while (p.world() > most || p.world() == 1 || 4 * p.world() < most);
    if (p.tp > 1) p.sequence_parallel = chance(1, 2);
  }

  void pipeline(config::Parallel& p) {
    if (p.pp == 1) return;
    const auto names = config::pipeline_schedules();
    p.schedule = names[static_cast<size_t>(pick(0, static_cast<int64_t>(names.size()) - 1))];
    p.chunks = config::traits_of(p.schedule).two_chunks() ? 2 : 1;
    if (p.schedule == "interleaved" && p.pp < 4) p.chunks = pick(2, 3);
  }

  // Expert ranks are blocks of the ranks of a stage, on any axes.
  void expert_axes(config::Parallel& p, config::Moe& moe) {
    const int64_t ranks = p.dp() * p.cp * p.tp;
    p.ep = divisor_of(ranks);
    while (p.ep > 16) p.ep = divisor_of(ranks);
    p.etp = chance(1, 2) ? 1 : divisor_of(ranks / p.ep);
    moe.experts = p.ep * of(p.ep > 4 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 2, 2, 3, 4});
    if (moe.experts == 1) moe.experts = of({2, 3, 4, 5, 8});
  }

  void sharding(config::Parallel& p) {
    if (p.dp_shard * p.cp == 1) return;
    p.zero = of({0, 1, 2, 3, 3, 3});
    if (p.zero > 0) p.prefetch = of({0, 1, 1, 2, 3});
    if (p.zero != 3) return;
    using Kind = ReshardAfterForward::Kind;
    p.reshard_after_forward.kind = static_cast<Kind>(of({0, 1, 1, 2}));
    if (p.reshard_after_forward.kind == Kind::ToRanks) p.reshard_after_forward.ranks = of({2, 4});
  }

  // As many blocks as there are virtual stages or a few more, sometimes with explicit sizes: then some stages
  // may be empty.
  void stages(Recipe& r) {
    config::Parallel& p = r.parallel;
    const int64_t places = p.pp * p.chunks;
    r.model.layers = places + of({0, 0, 1, 2});
    if (!chance(1, 3)) return;
    p.stages.assign(static_cast<size_t>(places), 0);
    for (int64_t i = 0; i < r.model.layers; ++i) ++p.stages[static_cast<size_t>(pick(0, places - 1))];
  }

  // Multi-token prediction on any stage from that of the last block on.
  void place_prediction(Recipe& r) {
    std::vector<int64_t>& stages = r.parallel.stages;
    const auto places = static_cast<size_t>(r.parallel.pp * r.parallel.chunks);
    if (stages.empty()) {
      stages.assign(places, 1);
      stages[static_cast<size_t>(pick(0, static_cast<int64_t>(places) - 1))] +=
          r.model.layers - static_cast<int64_t>(places);
    }
    size_t last = places - 1;
    while (last > 0 && stages[last] == 0) --last;
    ++stages[static_cast<size_t>(pick(static_cast<int64_t>(last), static_cast<int64_t>(places) - 1))];
  }

  void model(Recipe& r) {
    config::Model& m = r.model;
    config::Parallel& p = r.parallel;
    m.family = m.moe.experts > 0 || chance(1, 2) ? Family::Llama : chance(1, 3) ? Family::Neox : Family::Gpt2;
    m.layers = pick(1, 2);
    m.vocab = 256 + pick(0, 17);
    m.tied = chance(1, 2);
    heads(m, p);
    if (m.moe.experts == 0) m.ffn = p.tp * pick(2, 9);
    if (m.family == Family::Gpt2) {
      m.kv_heads = m.heads;
      m.head_dim = m.heads >= 8 ? of({2, 3}) : pick(3, 7);
      m.embed = m.heads * m.head_dim;
      m.dropout = of({0, 1}) ? 0.2 : 0;
      return;
    }
    if (m.family == Family::Neox) {
      m.kv_heads = m.heads;
      m.head_dim = 2 * pick(1, 3);
      m.embed = pick(12, 24);
      if (m.head_dim > 2 && chance(1, 2)) m.rotary_dim = 2;
      m.parallel_blocks = chance(1, 2);
      return;
    }
    m.embed = pick(12, 24);
    m.sliding_window = of({0, 0, 0, 3, 4, 7});
    if (chance(1, 4))
      m.rope_scaling = {.kind = RopeScalingKind::Llama3, .factor = 4, .original_positions = 16};
    else if (chance(1, 4))
      m.rope_scaling = {.kind = RopeScalingKind::Yarn, .factor = 4, .original_positions = 16};
    if (chance(1, 4)) {
      m.kv_heads = m.heads;
      m.mla = {.kv_rank = pick(3, 9),
               .q_rank = of({0, 1}) ? pick(3, 9) : 0,
               .nope_dim = pick(1, 4),
               .rope_dim = of({2, 4}),
               .v_dim = pick(1, 5)};
      return;
    }
    m.head_dim = 2 * (m.heads >= 8 ? pick(1, 2) : pick(1, 4));
    do m.kv_heads = pick(1, m.heads);
    while (m.heads % m.kv_heads != 0 || (p.tp % m.kv_heads != 0 && m.kv_heads % p.tp != 0));
    m.qkv_bias = chance(1, 3);
    m.qk_norm = chance(1, 3);
    if (chance(1, 2)) variations(m);
  }

  // What distinguishes Gemma, OLMo 2, SmolLM3 and GLM.
  void variations(config::Model& m) {
    m.norms = static_cast<config::NormPlaces>(pick(0, 2));
    m.norm_offset = of({0, 1});
    m.activation = static_cast<config::Activation>(pick(0, 1));
    if (m.qk_norm) m.qk_norm_over = static_cast<config::QkNormOver>(pick(0, 1));
    if (m.sliding_window > 0) {
      m.full_attention_every = of({0, 1, 2});
      if (chance(1, 2)) m.local_rope_theta = 100;
    }
    m.no_rope_every = of({0, 0, 1, 2});
    if (m.head_dim > 2 && chance(1, 2)) m.rotary_dim = m.head_dim - 2;
    if (chance(1, 2)) m.embed_scale = 3;
    if (chance(1, 2)) m.attention_scale = 0.7;
    if (chance(1, 2)) m.attention_soft_cap = 2;
    if (chance(1, 2)) m.logit_soft_cap = 3;
  }

  // Interleaved takes any number of micro-batches, in groups of at least as many as there are stages.
  void pipeline_groups(Recipe& r) {
    config::Parallel& p = r.parallel;
    if (p.schedule != "interleaved") return;
    if (chance(1, 2)) {
      r.batch.accumulation = pick(1, 2 * p.pp + 1);
      r.batch.global = r.batch.micro * r.batch.accumulation * p.dp();
    }
    if (chance(1, 2)) p.micro_group = p.pp + pick(0, 2);
  }

  // Any order of the axes, and in it any place of the experts' ranks.
  void axis_order(Recipe& r) {
    config::AxisOrder& order = r.parallel.order;
    if (r.parallel.ep > 1 && chance(1, 2)) order.push_back(config::MeshAxis::Ep);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(pick(0, static_cast<int64_t>(i) - 1))]);
  }

  // Blocks with a sliding window exchange in another way, as far as the heads allow.
  void windowed_method(Recipe& r) {
    config::Parallel& p = r.parallel;
    p.cp_method_windowed = static_cast<ContextMethod>(pick(1, 4));
    const int64_t heads = r.model.heads / p.tp;
    if (p.cp_method_windowed == ContextMethod::Ulysses && heads % p.cp != 0)
      p.cp_method_windowed = ContextMethod::Gather;
    if (p.cp_method_windowed == ContextMethod::UlyssesRing && (p.cp < 4 || heads % 2 != 0))
      p.cp_method_windowed = ContextMethod::Ring;
  }

  // Other ops in every block; some blocks recompute nothing.
  void layers_recompute(Recipe& r) {
    r.memory.recompute_ops.clear();
    for (int64_t layer = 0; layer < r.model.layers; ++layer) {
      if (chance(1, 4)) continue;
      config::RecomputeLayers entry{.layers = {layer}, .ops = {}};
      for (const std::string_view name : config::recompute_classes())
        if (chance(1, 3)) entry.ops.emplace_back(name);
      if (chance(1, 5)) entry.ops = {"all"};
      if (chance(1, 4)) entry.ops.emplace_back("blocks.*");
      r.memory.recompute_layers.push_back(entry);
    }
  }

  // Groups of several blocks or of parts of one, optimizer state shared by replicas, groups that stay whole.
  void grouping(Recipe& r) {
    config::Parallel& p = r.parallel;
    using Kind = config::Grouping::Kind;
    if (p.dp() * p.cp == 1) return;
    if (chance(1, 2))
      p.group = chance(1, 2) ? config::Grouping{Kind::Blocks, pick(1, r.model.layers)}
                             : config::Grouping{Kind::Bytes, pick(1, 40000)};
    if (p.zero > 0 && p.dp_replicate > 1)
      p.zero_replicas = r.optimizer.uses(OptimizerKind::Muon) ? 1 : pick(0, 1);
    if (p.zero != 3) return;
    if (r.model.moe.experts > 0 && chance(1, 3))
      p.reshard_experts = static_cast<config::ReshardExperts>(pick(1, 2));
    if (chance(1, 3)) p.persist_below = base::Bytes(pick(64, 40000));
    const bool kept = p.reshard_after_forward.kind == ReshardAfterForward::Kind::No ||
                      p.reshard_experts == config::ReshardExperts::Never;
    if (!kept && chance(1, 3)) p.gathered_limit = base::Bytes(int64_t{256} << 10);
  }

  // Groups and divided weights by the names of parameters.
  void patterns(Recipe& r) {
    config::Parallel& p = r.parallel;
    const std::vector<std::string> some = {"blocks.0.*", "*.attn.*", "*norm*"};
    const auto draw = [&] { return std::vector<std::string>{some[static_cast<size_t>(pick(0, 2))]}; };
    if (p.dp() * p.cp > 1 && chance(1, 4)) p.group_match = draw();
    if (p.zero == 3 && chance(1, 4)) p.persist_match = draw();
    if (p.zero == 3 && p.reshard_after_forward.kind != ReshardAfterForward::Kind::No &&
        p.gathered_limit.value == 0 && chance(1, 4))
      p.keep_match = draw();
    // Blocks of codes and of moments would begin elsewhere.
    if (p.tp == 1 || r.precision.quantises() || r.optimizer.kind == OptimizerKind::AdamW8bit ||
        r.model.embed % p.tp != 0 || !chance(1, 3))
      return;
    const std::string out = "blocks.*.attn.wo.weight";
    const int64_t how = pick(0, 3);
    if (!p.sequence_parallel && r.memory.recompute != config::RecomputeKind::Fit && chance(1, 3))
      r.memory.split_saved = true;
    if (how == 0) p.tp_column = {out};
    if (how == 1) p.tp_replicate = {out};
    if (how == 2) p.tp_replicate = {"blocks.0.*"};
    if (how == 3 && r.model.mla.kv_rank == 0) p.tp_row = {"blocks.0.attn.w?.weight"};
  }

  // Few ranks share the experts, so that copies of one are among the ranks of a gather before the backward
  // pass.
  void reshard_experts(Recipe& r) {
    config::Parallel& p = r.parallel;
    const int64_t n = p.dp_shard * p.cp;
    if (p.zero != 3 || n < 4 || n % 2 != 0) return;
    p.reshard_after_forward = {ReshardAfterForward::Kind::ToRanks, n / 2};
    p.etp = 1;
    p.ep = r.model.moe.experts % 2 == 0 && p.tp * n / 2 > 2 && (p.tp % 2 == 0 || n % 4 == 0) ? 2 : 1;
  }

  // What distinguishes GPT-OSS, DBRX and Llama 4.
  void more_variations(config::Model& m) {
    if (m.moe.experts > 0) expert_variations(m);
    if (m.family == config::Family::Llama && chance(1, 4)) m.mtp = {.layers = 1, .loss = 0.5};
    if (m.family != config::Family::Llama || m.mla.kv_rank > 0 || chance(1, 2)) return;
    m.out_bias = chance(1, 3);
    m.attention_sinks = chance(1, 2);
    m.qk_unit_norm = chance(1, 3);
    if (chance(1, 3)) m.clip_qkv = 0.5;
    m.centered_norms = !m.qk_norm && chance(1, 3);
    if (m.sliding_window == 0 && chance(1, 2)) m.attention_chunk = pick(1, 5);
    if (m.no_rope_every > 0 && chance(1, 2)) m.position_scale = 0.4, m.position_floor = pick(1, 3);
  }

  // What fits the sizes that are drawn above: windows by block, frequencies by pair, the form of GELU.
  void last_variations(config::Model& m) {
    if (m.family == Family::Neox) m.gelu_tanh = chance(1, 3);
    if (m.family != Family::Llama) return;
    if (m.sliding_window > 0 && m.full_attention_every == 0 && chance(1, 2)) m.full_attention_layers = {0};
    if (m.mla.kv_rank > 0 || m.rope_scaling.kind != RopeScalingKind::None || !chance(1, 3)) return;
    m.rope_scaling.factor = 4;
    if (chance(1, 2)) {
      m.rope_scaling.kind = RopeScalingKind::Linear;
      return;
    }
    const auto pairs = static_cast<size_t>((m.rotary_dim > 0 ? m.rotary_dim : m.head_dim) / 2);
    m.rope_scaling.kind = RopeScalingKind::Longrope;
    m.rope_scaling.original_positions = 16;
    m.rope_scaling.short_factors.assign(pairs, 1.25);
    m.rope_scaling.long_factors.assign(pairs, 3);
  }

  // Further scores, jitter, several balance losses, random drops, latent experts.
  void expert_variations_of_peers(config::Model& m) {
    config::Moe& x = m.moe;
    if (x.score == config::RouterScore::Sigmoid && !x.scale_input && chance(1, 2))
      x.score = config::RouterScore::SqrtSoftplus;
    if (!x.force_balance && chance(1, 3)) x.jitter = 0.1;
    if (x.capacity_factor > 0 && chance(1, 3)) x.drop = config::DropPolicy::Random;
    if (chance(1, 3)) x.latent = pick(1, m.embed - 1);
    if (x.balance_loss == 0) return;
    if (x.balance_scope != BalanceScope::MicroBatch && chance(1, 3)) x.balance.micro_batch = 0.2;
    if (x.balance_scope != BalanceScope::Sequence && chance(1, 3)) x.balance.sequence = 0.1;
    if (x.balance_scope != BalanceScope::Global && chance(1, 3)) x.balance.global = 0.4;
  }

  // An encoder on masked tokens in place of the model, with its sizes.
  void encoder(Recipe& r) {
    config::Model& m = r.model;
    const int64_t drawn = pick(3, 7), codes = m.heads % 2 == 0 ? 8 : 16;
    const int64_t head_dim = r.precision.quantises()                ? codes
                             : m.mla.kv_rank > 0 || m.head_dim == 0 ? drawn
                                                                    : m.head_dim;
    config::Model e{.family = Family::Bert,
                    .layers = m.layers,
                    .embed = m.heads * head_dim,
                    .ffn = m.ffn,
                    .heads = m.heads,
                    .kv_heads = m.heads,
                    .head_dim = head_dim,
                    .vocab = std::max<int64_t>(257, m.vocab),
                    .tied = m.tied,
                    .gelu_tanh = chance(1, 4),
                    .max_positions = r.data.seq_len + pick(0, 3),
                    .token_types = pick(1, 3),
                    .dropout = chance(1, 2) ? 0.2 : 0.0,
                    .init = config::InitScheme::Normal};
    // The bias of the head is cut as the vocabulary is: a rank holds whole blocks of it.
    if (r.optimizer.kind == OptimizerKind::AdamW8bit) {
      const int64_t blocks = r.optimizer.block_size * r.parallel.tp;
      e.vocab = (257 + blocks - 1) / blocks * blocks;
    }
    m = e;
    r.data.mlm.rate = std::array{0.15, 0.5, 1.0}[static_cast<size_t>(pick(0, 2))];
    if (chance(1, 3)) r.data.mlm.random = 0.4, r.data.mlm.keep = 0.3;
    // Patterns of parameters that only other models have; a bias on K has no gradient but rounding errors.
    if (!r.optimizer.groups.empty()) r.optimizer.groups = {};
    if (r.optimizer.uses(OptimizerKind::Lion)) r.optimizer.kind = OptimizerKind::AdamW;
  }

  // Sizes of which at least some linears can be quantised.
  void quantised_linears(Recipe& r) {
    config::Model& m = r.model;
    r.precision.linear = config::LinearKind::Fp8Delayed;
    // Gradients of codes are sums of numbers of few bits, so that moments can lie halfway between two 8-bit
    // codes, where the last bit decides.
    if (r.optimizer.kind == OptimizerKind::AdamW8bit) {
      r.optimizer.kind = OptimizerKind::AdamW;
      r.optimizer.block_size = config::Optimizer{}.block_size;
    }
    m.head_dim = m.heads % 2 == 0 ? 8 : 16;
    m.embed = m.family == Family::Gpt2 ? m.heads * m.head_dim : of({16, 32});
    if (m.mla.kv_rank > 0) m.head_dim = 0, m.mla.kv_rank = 16;
    if (m.ffn > 0) m.ffn = 16 * r.parallel.tp;
    if (m.moe.shared_ffn > 0) m.moe.shared_ffn = 16 * r.parallel.tp;
    if (chance(1, 4)) r.precision.fp8_match = {"*.attn.*"};
    if (chance(1, 3) && m.mtp.layers == 0) r.precision.fp8_head = true, m.vocab = 272;
  }

  // Scales of blocks of 32, with the smallest sizes of which every rank holds whole ones; as far as the rules
  // allow, and models stay small.
  void block_scales(Recipe& r) {
    constexpr int64_t kBlock = 32;
    Recipe b = r;
    config::Model& m = b.model;
    const config::Parallel& p = b.parallel;
    b.precision.linear = config::LinearKind::Mxfp8;
    b.data.seq_len = kBlock * (p.cp > 1 ? 2 * p.cp : 1) * (p.sequence_parallel ? p.tp : 1);
    if (m.mla.kv_rank > 0 || m.heads > 4 || b.data.seq_len > 4 * kBlock) return;
    m.head_dim = kBlock;
    m.embed = m.family == Family::Gpt2 || m.family == Family::Bert ? m.heads * m.head_dim : kBlock;
    if (m.ffn > 0) m.ffn = kBlock * p.tp;
    if (m.moe.shared_ffn > 0) m.moe.shared_ffn = kBlock * p.tp;
    if (m.max_positions > 0) m.max_positions = b.data.seq_len + 1;
    if (b.precision.fp8_head) {
      const int64_t unit = kBlock * p.tp;
      m.vocab = (m.vocab + unit - 1) / unit * unit;
      if (b.loss.chunk > 0) b.loss.chunk = kBlock;
    }
    if (config::problems_of(b).empty()) r = b;
  }

  // The first step has fewer micro-batches than the others.
  void smaller_steps(Recipe& r) {
    const int64_t unit = r.parallel.schedule == "interleaved" ? r.parallel.pp : 1;
    if (r.batch.accumulation <= unit) return;
    const int64_t few = unit * pick(1, (r.batch.accumulation - 1) / unit);
    r.batch.ramp = {
        {.until = {config::Length::Unit::Steps, 1}, .global = r.batch.micro * few * r.parallel.dp()}};
    if (chance(1, 3)) r.optimizer.lr_scaling = {config::LrScalingRule::Sqrt, r.batch.global};
  }

  // Biases and activations of experts, and scores on their inputs.
  void expert_variations(config::Model& m) {
    config::Moe& x = m.moe;
    m.activation = config::Activation::Silu;
    x.bias = chance(1, 3);
    if (!m.has_dense_block() && x.shared_ffn == 0 && chance(1, 2))
      m.activation = config::Activation::Clamped, m.activation_limit = 0.05;
    x.scale_input = x.top_k == 1 && x.score == config::RouterScore::Sigmoid && x.normalise &&
                    !x.force_balance && chance(1, 2);
  }

  // Heads as required by the tensor ranks and the context method.
  void heads(config::Model& m, config::Parallel& p) {
    m.heads = p.tp * of({1, 1, 2});
    if (m.heads == 1) m.heads = of({1, 2, 4});
    if (p.cp == 1) return;
    p.cp_method = static_cast<ContextMethod>(pick(0, 4));
    if (p.cp_method == ContextMethod::UlyssesRing && p.cp < 4) p.cp_method = ContextMethod::Ring;
    if (p.cp_method == ContextMethod::Ulysses) m.heads = p.tp * p.cp * of({1, 1, 2});
    if (p.cp_method == ContextMethod::UlyssesRing) {
      const int64_t u = p.cp == 8 ? of({2, 4}) : 2;
      m.heads = p.tp * u * of({1, 1, 3});
      if (chance(1, 2)) p.ulysses = u;
    }
    if (p.cp_method == ContextMethod::Auto) m.heads *= of({1, 2, p.cp});
  }

  void batch(Recipe& r) {
    const config::Parallel& p = r.parallel;
    const int64_t rows = p.cp > 1 ? 2 * p.cp : 1;
    r.data.seq_len = p.cp > 1 ? rows * pick(1, std::max<int64_t>(1, 24 / rows)) : pick(5, 16);
    r.data.pack = chance(3, 4);
    if (r.model.family == Family::Gpt2) r.model.max_positions = r.data.seq_len + pick(0, 3);
    r.batch.micro = of({1, 1, 2, 2, 3, 4});
    if (r.model.moe.experts > 0 || p.sequence_parallel) {
      // Token rows are sharded over the tensor ranks.
      while (r.batch.micro * r.data.seq_len % (p.tp * p.cp) != 0) r.data.seq_len += rows;
    }
    if (r.model.max_positions > 0) r.model.max_positions = std::max(r.model.max_positions, r.data.seq_len);
    r.batch.accumulation = of({1, 1, 2, 3});
    if (p.pp > 1) r.batch.accumulation = pick(1, p.pp + 2);
    if (p.schedule == "interleaved") r.batch.accumulation = p.pp * (p.pp < 4 ? pick(1, 2) : 1);
    r.batch.global = r.batch.micro * r.batch.accumulation * p.dp();
  }

  void moe(Recipe& r) {
    config::Moe& x = r.model.moe;
    const config::Parallel& p = r.parallel;
    x.top_k = pick(1, std::min<int64_t>(3, x.experts));
    x.ffn = p.etp * pick(1, 5);
    if (chance(1, 3)) {
      x.shared_ffn = p.tp * pick(1, 4);
      x.shared_gate = chance(1, 2);
    }
    if (r.model.layers > 1) x.first_dense = of({0, 0, 1});
    if (r.model.layers >= x.first_dense + 2) x.every = of({1, 1, 2});
    if (r.model.has_dense_block()) r.model.ffn = p.tp * pick(2, 9);
    router(x);
    x.force_balance = chance(1, 10);
    // Forced equal loads have no gradient except rounding errors, which would be the whole gradient in a step
    // without labels.
    if (chance(2, 3) && x.top_k < x.experts && !x.force_balance) {
      x.balance_loss = 0.3;
      x.balance_scope = static_cast<BalanceScope>(pick(0, 2));
    }
    if (chance(1, 3)) x.z_loss = 0.05;
    if (chance(1, 2)) {
      x.capacity_factor = std::array{0.3, 0.7, 1.0, 1.25, 3.0}[static_cast<size_t>(pick(0, 4))];
      x.drop = static_cast<config::DropPolicy>(pick(0, 1));
      x.capacity_group = divisor_of(r.batch.micro);
      x.pad = chance(1, 3);
    }
  }

  void router(config::Moe& x) {
    x.score = static_cast<config::RouterScore>(pick(0, 1));
    if (x.score == config::RouterScore::Softmax && chance(1, 3)) x.order = config::RouterOrder::TopKFirst;
    if (x.order == config::RouterOrder::ScoreFirst) {
      x.normalise = chance(2, 3);
      if (chance(1, 2)) x.bias_rate = 0.02;
    }
    x.scale = of({0, 1}) ? 2.5 : 1;
    if (!chance(1, 3)) return;
    x.groups = divisor_of(x.experts);
    const int64_t size = x.experts / x.groups, needed = (x.top_k + size - 1) / size;
    x.groups_kept = pick(needed, x.groups);
  }

  void memory(Case& c) {
    Recipe& r = c.recipe;
    if (!chance(1, 2)) return;
    r.memory.recompute = static_cast<config::RecomputeKind>(of({1, 1, 2, 2, 2}));
    if (r.memory.recompute == config::RecomputeKind::Full) r.memory.recompute_every = pick(1, r.model.layers);
    if (r.memory.recompute == config::RecomputeKind::Selective && chance(1, 2))
      for (const std::string_view name : config::recompute_classes())
        if (chance(1, 2)) r.memory.recompute_ops.emplace_back(name);
    if (r.parallel.world() > 8 || !chance(1, 6)) return;
    r.memory = {};
    c.tight = true;
  }

  void optimizer(Recipe& r) {
    config::Optimizer& o = r.optimizer;
    o.lr = 1e-2;
    if (chance(1, 4)) {
      o.kind = OptimizerKind::Sgd;
      o.momentum = of({0, 1}) ? 0.9 : 0.0;
    }
    o.weight_decay = of({0, 1}) ? 0.1 : 0.0;
    o.clip_norm = std::array{0.0, 0.05, 1.0}[static_cast<size_t>(pick(0, 2))];
    if (!chance(1, 3)) return;
    std::vector<std::string> patterns = {"embed.weight", "blocks.0.*", "*norm*", "final_norm.*",
                                         "blocks.*.attn.w?.weight"};
    if (r.model.mla.kv_rank > 0) patterns.back() = "blocks.*.attn.*";
    if (r.model.moe.experts > 0)
      patterns.insert(patterns.end(), {"*router*", "*.experts.*", "*experts.up.weight"});
    else
      patterns.push_back("*.down.weight");
    if (r.model.moe.shared_ffn > 0) patterns.push_back("*shared*");
    if (!r.model.tied) patterns.push_back("head.weight");
    if (r.model.family == Family::Gpt2)
      patterns.insert(patterns.end(), {"positions.weight", "*.bias", "blocks.*.ffn_norm.weight"});
    if (r.model.layers > 1) patterns.push_back("blocks.1.attn.*");
    o.groups.push_back(
        frozen(patterns[static_cast<size_t>(pick(0, static_cast<int64_t>(patterns.size()) - 1))]));
  }

  OptimizerKind any_optimizer() {
    return std::array{OptimizerKind::AdamW, OptimizerKind::AdamW, OptimizerKind::Adam, OptimizerKind::Lion,
                      OptimizerKind::Muon}[static_cast<size_t>(pick(0, 4))];
  }

  void ratio_optimizer(config::Optimizer& o) {
    o.kind = chance(1, 2) ? OptimizerKind::Lamb : OptimizerKind::Lars;
    o.nesterov = false;
    o.momentum = o.kind == OptimizerKind::Lars && chance(2, 3) ? 0.9 : 0.0;
    if (chance(1, 3)) o.ratio_limits = {o.kind == OptimizerKind::Lars ? 0.01 : 1.0, 10.0};
  }

  // eps1 is far above rounding errors: where there is no other gradient they would be the whole update.
  void adafactor(config::Optimizer& o) {
    o.kind = OptimizerKind::Adafactor;
    o.adafactor.eps1 = 1e-6;
    o.adafactor.relative = chance(1, 2);
    if (chance(1, 2)) o.adafactor.clip = 0.5;
  }

  // Settings for some of the parameters that are not frozen, or for the rest of them.
  void groups(Recipe& r) {
    config::Optimizer& o = r.optimizer;
    if (chance(1, 3)) {
      const std::string match = std::array{"*norm*", "embed.weight", "*"}[static_cast<size_t>(pick(0, 2))];
      const bool is_free = o.groups.empty() || o.groups[0].match != match;
      config::ParamGroup group{.match = match, .kind = {}, .lr = {}, .weight_decay = {}};
      if (chance(2, 3))
        group.kind = chance(1, 3) ? chance(1, 2) ? OptimizerKind::Sgd : OptimizerKind::Lamb : any_optimizer();
      if (chance(1, 2)) group.lr = 3e-3;
      if (chance(1, 2)) group.weight_decay = of({0, 1}) ? 0.2 : 0.0;
      if (is_free) o.groups.push_back(group);
    }
    if (o.uses(OptimizerKind::Muon)) {
      o.muon.nesterov = chance(1, 2);
      o.muon.scale = chance(1, 2) ? config::MuonScale::Original : config::MuonScale::MatchRmsAdamW;
    }
    if (!o.uses(OptimizerKind::Lion)) return;
    // Where a gradient is only rounding error, Lion takes its sign: layouts diverge, and comparing further
    // steps proves nothing.
    const config::Moe& x = r.model.moe;
    const auto spare = [&](const char* match) {
      o.groups = {{.match = match, .kind = OptimizerKind::Sgd, .lr = {}, .weight_decay = {}}};
    };
    if (r.model.family == Family::Gpt2) spare("*.wk.bias");
    if (x.experts > 0 && x.balance_loss == 0 && x.z_loss == 0) spare("*router*");
  }

  std::mt19937_64& random_;
};

}  // namespace

Case draw_case(std::mt19937_64& random) { return Generator(random).draw(); }

}  // namespace quintet::tests
