#include <algorithm>
#include <functional>
#include <vector>

#include "config/recipe.h"
#include "equivalence/random_layout.h"

namespace quintet::tests {
namespace {

using config::ContextMethod;
using config::Model;
using config::Moe;
using config::OptimizerKind;
using config::Parallel;
using Change = std::function<void(Case&)>;

Change parallel(void (*change)(Parallel&)) {
  return [change](Case& c) { change(c.recipe.parallel); };
}
Change model(void (*change)(Model&)) {
  return [change](Case& c) { change(c.recipe.model); };
}
Change experts(void (*change)(Moe&)) {
  return [change](Case& c) {
    if (c.recipe.model.moe.experts > 0) change(c.recipe.model.moe);
  };
}

void no_pipeline(Parallel& p) {
  p.pp = p.chunks = 1;
  p.schedule.clear();
  p.stages.clear();
  p.micro_group = 0;
}

void no_sharding(Parallel& p) {
  p.zero = 0;
  p.prefetch = 1;
  p.gradient_blocks = 2;
  p.reshard_after_forward = {};
  p.reshard_experts = config::ReshardExperts::Same;
  p.zero_replicas = 0;
  p.gathered_limit = p.persist_below = {};
  p.keep_match = p.persist_match = {};
}

void no_context(Parallel& p) {
  p.cp = 1;
  p.cp_method = ContextMethod::Auto;
  p.ulysses = 0;
  if (p.dp_shard == 1) no_sharding(p);
}

void no_experts(Case& c) {
  Model& m = c.recipe.model;
  if (!m.has_dense_block()) m.ffn = 2 * c.recipe.parallel.tp;
  m.moe = {};
  c.recipe.parallel.ep = c.recipe.parallel.etp = 1;
}

void method(Parallel& p, ContextMethod to) {
  if (p.cp == 1) return;
  p.cp_method = to;
  p.ulysses = 0;
}

// Changes only remove features, so that no two of them undo each other and the search terminates.
std::vector<Change> axis_changes() {
  return {
      parallel(no_pipeline),
      parallel([](Parallel& p) { p.stages.clear(); }),
      parallel([](Parallel& p) {
        if (p.pp == 1) return;
        p.schedule = "gpipe";
        p.chunks = 1;
        p.stages.clear();
      }),
      parallel([](Parallel& p) {
        p.pp = std::min<int64_t>(p.pp, 2);
        p.stages.clear();
      }),
      [](Case& c) {
        Parallel& p = c.recipe.parallel;
        c.recipe.model.layers = std::min(c.recipe.model.layers, p.pp * p.chunks);
        p.stages.clear();
      },
      no_experts,
      parallel([](Parallel& p) { p.ep = p.etp = 1; }),
      parallel([](Parallel& p) { p.etp = 1; }),
      parallel([](Parallel& p) { p.ep = 1; }),
      parallel([](Parallel& p) { p.ep = std::min<int64_t>(p.ep, 2); }),
      parallel([](Parallel& p) { p.etp = std::min<int64_t>(p.etp, 2); }),
      parallel(no_context),
      parallel([](Parallel& p) { method(p, ContextMethod::Gather); }),
      parallel([](Parallel& p) {
        if (p.cp_method == ContextMethod::UlyssesRing) method(p, ContextMethod::Ring);
      }),
      parallel([](Parallel& p) {
        if (p.cp_method == ContextMethod::UlyssesRing) method(p, ContextMethod::Ulysses);
      }),
      parallel([](Parallel& p) {
        p.cp = std::min<int64_t>(p.cp, 2);
        p.ulysses = 0;
      }),
      parallel([](Parallel& p) { p.cp = std::min<int64_t>(p.cp, 4); }),
      parallel([](Parallel& p) {
        p.dp_replicate = 1;
        p.zero_replicas = 0;
      }),
      parallel([](Parallel& p) { p.dp_replicate = std::min<int64_t>(p.dp_replicate, 2); }),
      parallel([](Parallel& p) {
        p.dp_shard = 1;
        if (p.cp == 1) no_sharding(p);
      }),
      parallel([](Parallel& p) {
        p.tp = 1;
        p.sequence_parallel = false;
      }),
      parallel([](Parallel& p) { p.dp_shard = std::min<int64_t>(p.dp_shard, 2); }),
      parallel([](Parallel& p) { p.tp = std::min<int64_t>(p.tp, 2); }),
      parallel([](Parallel& p) { p.reshard_after_forward = {}; }),
      parallel(no_sharding),
      parallel([](Parallel& p) { p.zero = std::max<int64_t>(0, p.zero - 1); }),
      parallel([](Parallel& p) { p.sequence_parallel = false; }),
      parallel([](Parallel& p) { p.prefetch = 1; }),
      parallel([](Parallel& p) { p.gradient_blocks = 2; }),
      parallel([](Parallel& p) { p.group = {}; }),
      parallel([](Parallel& p) { p.zero_replicas = 0; }),
      parallel([](Parallel& p) { p.reshard_experts = config::ReshardExperts::Same; }),
      parallel([](Parallel& p) { p.gathered_limit = {}; }),
      parallel([](Parallel& p) { p.persist_below = {}; }),
      parallel([](Parallel& p) { p.group_match = {}; }),
      parallel([](Parallel& p) { p.keep_match = {}; }),
      parallel([](Parallel& p) { p.persist_match = {}; }),
      parallel([](Parallel& p) { p.tp_column = {}; }),
      parallel([](Parallel& p) { p.tp_row = {}; }),
      parallel([](Parallel& p) { p.tp_replicate = {}; }),
      parallel([](Parallel& p) { p.micro_group = 0; }),
  };
}

std::vector<Change> model_changes() {
  return {
      model([](Model& m) { m.layers = 1; }),
      model([](Model& m) { m.layers = std::min<int64_t>(m.layers, 2); }),
      model([](Model& m) { m.vocab = 256; }),
      model([](Model& m) { m.tied = false; }),
      model([](Model& m) {
        if (m.mla.kv_rank == 0) return;
        m.mla = {};
        m.head_dim = 4;
      }),
      model([](Model& m) { m.mla.q_rank = 0; }),
      model([](Model& m) { m.kv_heads = m.heads; }),
      model([](Model& m) { m.dropout = 0; }),
      model([](Model& m) { m.qkv_bias = false; }),
      model([](Model& m) {
        m.qk_norm = false;
        m.qk_norm_over = config::QkNormOver::Head;
      }),
      model([](Model& m) {
        m.sliding_window = m.full_attention_every = 0;
        m.full_attention_layers.clear();
        m.local_rope_theta = 0;
      }),
      model([](Model& m) { m.norms = config::NormPlaces::Pre; }),
      model([](Model& m) { m.norm_offset = 0; }),
      model([](Model& m) { m.activation = config::Activation::Silu, m.activation_limit = 7; }),
      model([](Model& m) { m.qk_norm_over = config::QkNormOver::Head; }),
      model([](Model& m) { m.full_attention_every = 0; }),
      model([](Model& m) { m.full_attention_layers.clear(); }),
      model([](Model& m) { m.local_rope_theta = 0; }),
      model([](Model& m) {
        m.no_rope_every = 0;
        m.position_scale = 0, m.position_floor = 8192;
      }),
      model([](Model& m) { m.position_scale = 0, m.position_floor = 8192; }),
      model([](Model& m) { m.out_bias = false; }),
      model([](Model& m) { m.attention_sinks = false; }),
      model([](Model& m) { m.attention_chunk = 0; }),
      model([](Model& m) { m.qk_unit_norm = false; }),
      model([](Model& m) { m.clip_qkv = 0; }),
      model([](Model& m) { m.centered_norms = false; }),
      model([](Model& m) {
        m.rotary_dim = 0;
        if (m.rope_scaling.kind == config::RopeScalingKind::Longrope) m.rope_scaling = {};
      }),
      model([](Model& m) { m.embed_scale = 1; }),
      model([](Model& m) { m.attention_scale = 0; }),
      model([](Model& m) { m.attention_soft_cap = 0; }),
      model([](Model& m) { m.logit_soft_cap = 0; }),
      model([](Model& m) { m.parallel_blocks = false; }),
      model([](Model& m) { m.rope_scaling = {}; }),
      model([](Model& m) { m.mtp = {}; }),
  };
}

std::vector<Change> expert_changes() {
  return {
      experts([](Moe& x) { x.every = 1; }),
      experts([](Moe& x) { x.first_dense = 0; }),
      [](Case& c) {
        Model& m = c.recipe.model;
        if (m.moe.experts == 0) return;
        m.moe.every = 1;
        m.moe.first_dense = 0;
        m.ffn = m.moe.ffn;
      },
      experts([](Moe& x) {
        x.shared_ffn = 0;
        x.shared_gate = false;
      }),
      experts([](Moe& x) { x.shared_gate = false; }),
      experts([](Moe& x) { x.bias = false; }),
      experts([](Moe& x) { x.scale_input = false; }),
      experts([](Moe& x) { x.score = config::RouterScore::Softmax; }),
      experts([](Moe& x) { x.order = config::RouterOrder::ScoreFirst; }),
      experts([](Moe& x) { x.normalise = true; }),
      experts([](Moe& x) { x.scale = 1; }),
      experts([](Moe& x) { x.groups = x.groups_kept = 1; }),
      experts([](Moe& x) {
        x.balance_loss = 0;
        x.balance_scope = config::BalanceScope::MicroBatch;
        x.balance = {};
      }),
      experts([](Moe& x) {
        x.balance_scope = config::BalanceScope::MicroBatch;
        x.balance.micro_batch = 0;
      }),
      experts([](Moe& x) { x.balance = {}; }),
      experts([](Moe& x) { x.jitter = 0; }),
      experts([](Moe& x) { x.latent = 0; }),
      experts([](Moe& x) { x.z_loss = 0; }),
      experts([](Moe& x) { x.bias_rate = 0; }),
      experts([](Moe& x) {
        x.capacity_factor = 0;
        x.capacity_group = 1;
        x.drop = config::DropPolicy::Probability;
        x.pad = false;
      }),
      experts([](Moe& x) { x.pad = false; }),
      experts([](Moe& x) { x.receive_bound = 0; }),
      experts([](Moe& x) { x.capacity_group = 1; }),
      experts([](Moe& x) { x.drop = config::DropPolicy::Probability; }),
      experts([](Moe& x) { x.force_balance = false; }),
      experts([](Moe& x) { x.top_k = 1; }),
      experts([](Moe& x) { x.top_k = std::min<int64_t>(x.top_k, 2); }),
      [](Case& c) {
        Moe& x = c.recipe.model.moe;
        if (x.experts == 0) return;
        x.experts = std::max<int64_t>({2, c.recipe.parallel.ep, x.top_k});
        x.groups = x.groups_kept = 1;
      },
  };
}

std::vector<Change> other_changes() {
  return {
      [](Case& c) { c.poison = false; },
      [](Case& c) { c.recipe.memory = {}; },
      [](Case& c) { c.recipe.batch.accumulation = 1; },
      [](Case& c) { c.recipe.batch.accumulation = std::min<int64_t>(c.recipe.batch.accumulation, 2); },
      [](Case& c) {
        c.recipe.batch.micro = 1;
        c.recipe.model.moe.capacity_group = 1;
      },
      [](Case& c) {
        if (c.recipe.parallel.cp > 1) c.recipe.data.seq_len = 2 * c.recipe.parallel.cp;
      },
      [](Case& c) {
        if (c.recipe.parallel.cp > 1)
          c.recipe.data.seq_len =
              std::min(c.recipe.data.seq_len, 2 * c.recipe.parallel.cp * c.recipe.parallel.tp);
      },
      [](Case& c) { c.recipe.data.seq_len = std::min<int64_t>(c.recipe.data.seq_len, 8); },
      [](Case& c) { c.recipe.data.pack = false; },
      [](Case& c) { c.recipe.loss.chunk = 0; },
      [](Case& c) { c.recipe.optimizer.groups.clear(); },
      [](Case& c) { c.recipe.optimizer.clip = config::ClipKind::Norm; },
      [](Case& c) { c.recipe.optimizer.clip_norm = 0; },
      [](Case& c) { c.recipe.optimizer.ema = 0; },
      [](Case& c) { c.recipe.precision.moments_rounding = config::MomentsRounding::Nearest; },
      [](Case& c) {
        c.recipe.precision.linear = config::LinearKind::Compute;
        c.recipe.precision.fp8_match.clear();
        c.recipe.precision.fp8_head = false;
      },
      [](Case& c) { c.recipe.precision.fp8_match.clear(); },
      [](Case& c) { c.recipe.precision.fp8_head = false; },
      [](Case& c) { c.recipe.precision = config::Precision::of(c.recipe.precision.compute); },
      [](Case& c) {
        c.recipe.batch.ramp.clear();
        c.recipe.optimizer.lr_scaling = {};
      },
      [](Case& c) { c.recipe.optimizer.lr_scaling = {}; },
      [](Case& c) { c.recipe.optimizer.weight_decay_ramp = {}; },
      [](Case& c) {
        c.recipe.optimizer.weight_decay = 0;
        c.recipe.optimizer.weight_decay_ramp = {};
      },
      [](Case& c) {
        c.recipe.optimizer.kind = OptimizerKind::Sgd;
        c.recipe.optimizer.block_size = config::Optimizer{}.block_size;
        c.recipe.optimizer.adafactor = {};
        c.recipe.optimizer.momentum = 0;
      },
      [](Case& c) { c.mask = MaskKind::All; },
      [](Case& c) { c.steps = std::min<int64_t>(c.steps, 2); },
      [](Case& c) { c.steps = 1; },
  };
}

}  // namespace

Case shrink(Case failing) {
  std::vector<Change> changes;
  for (const std::vector<Change>& more : {axis_changes(), expert_changes(), model_changes(), other_changes()})
    changes.insert(changes.end(), more.begin(), more.end());
  const auto is_refusal = [](const std::optional<std::string>& f) { return f && f->starts_with(kRefused); };
  const bool refused = is_refusal(failure_of(failing));
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Change& change : changes) {
      Case c = failing;
      change(c);
      const auto candidate = legal(std::move(c));
      if (!candidate || (candidate->recipe == failing.recipe && candidate->mask == failing.mask &&
                         candidate->poison == failing.poison && candidate->steps == failing.steps))
        continue;
      const auto failure = failure_of(*candidate);
      if (!failure || is_refusal(failure) != refused) continue;
      failing = *candidate;
      smaller = true;
    }
  }
  return failing;
}

}  // namespace quintet::tests
