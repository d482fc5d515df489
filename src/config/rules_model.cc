// Rules for blocks that differ from each other, [model.moe] and [model.mla].
#include <algorithm>

#include "config/nearest.h"
#include "config/rule.h"

namespace quintet::config {
namespace {

const Moe kDefaultMoe;
const Mla kDefaultMla;

// ---- experts

void expert_keys_need_experts(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  const Moe& d = kDefaultMoe;
  if (x.experts > 0) return;
  const std::string why = "with model.moe.experts = 0";
  idle(fail, "model.moe.top_k", x.top_k, d.top_k, why);
  idle(fail, "model.moe.ffn", x.ffn, d.ffn, why);
  idle(fail, "model.moe.latent", x.latent, d.latent, why);
  idle(fail, "model.moe.shared_ffn", x.shared_ffn, d.shared_ffn, why);
  idle(fail, "model.moe.shared_gate", x.shared_gate, d.shared_gate, why);
  idle(fail, "model.moe.bias", x.bias, d.bias, why);
  idle(fail, "model.moe.scale_input", x.scale_input, d.scale_input, why);
  idle(fail, "model.moe.upcycle", x.upcycle, d.upcycle, why);
  idle(fail, "model.moe.upcycle_slices", x.upcycle_slices, d.upcycle_slices, why);
  idle(fail, "model.moe.first_dense", x.first_dense, d.first_dense, why);
  idle(fail, "model.moe.every", x.every, d.every, why);
  idle(fail, "model.moe.score", x.score, d.score, why);
  idle(fail, "model.moe.order", x.order, d.order, why);
  idle(fail, "model.moe.normalise", x.normalise, d.normalise, why);
  idle(fail, "model.moe.scale", x.scale, d.scale, why);
  idle(fail, "model.moe.groups", x.groups, d.groups, why);
  idle(fail, "model.moe.groups_kept", x.groups_kept, d.groups_kept, why);
  idle(fail, "model.moe.jitter", x.jitter, d.jitter, why);
  idle(fail, "model.moe.balance_loss", x.balance_loss, d.balance_loss, why);
  idle(fail, "model.moe.balance_scope", x.balance_scope, d.balance_scope, why);
  idle(fail, "model.moe.z_loss", x.z_loss, d.z_loss, why);
  idle(fail, "model.moe.bias_rate", x.bias_rate, d.bias_rate, why);
  idle(fail, "model.moe.capacity_factor", x.capacity_factor, d.capacity_factor, why);
  idle(fail, "model.moe.eval_capacity_factor", x.eval_capacity_factor, d.eval_capacity_factor, why);
  idle(fail, "model.moe.min_capacity", x.min_capacity, d.min_capacity, why);
  idle(fail, "model.moe.drop", x.drop, d.drop, why);
  idle(fail, "model.moe.capacity_group", x.capacity_group, d.capacity_group, why);
  idle(fail, "model.moe.pad", x.pad, d.pad, why);
  idle(fail, "model.moe.receive_bound", x.receive_bound, d.receive_bound, why);
  idle(fail, "model.moe.force_balance", x.force_balance, d.force_balance, why);
  idle(fail, "model.moe.balance.micro_batch", x.balance.micro_batch, d.balance.micro_batch, why);
  idle(fail, "model.moe.balance.sequence", x.balance.sequence, d.balance.sequence, why);
  idle(fail, "model.moe.balance.global", x.balance.global, d.balance.global, why);
}

void experts_are_complete(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  if (x.experts == 0) return;
  if (x.top_k < 1 || x.top_k > x.experts)
    fail("model.moe.top_k", fmt::format("{} must be between 1 and model.moe.experts {}", x.top_k, x.experts),
         x.top_k < 1 ? "1" : fmt::format("{}", x.experts));
  if (x.ffn < 1)
    fail("model.moe.ffn", "is required: the inner width of one expert", "the model's ffn / top_k");
  if (!r.model.has_dense_block() && r.model.ffn != x.ffn)
    fail("model.ffn", fmt::format("{} has no effect: every block has experts", r.model.ffn),
         fmt::format("leave it out, or model.moe.ffn {}", r.model.ffn));
  if (x.latent >= r.model.embed)
    fail("model.moe.latent",
         fmt::format("{} must be below model.embed {}: rows are sent to experts in this width to save bytes",
                     x.latent, r.model.embed),
         fmt::format("{}, or 0 for none", std::max<int64_t>(1, r.model.embed / 4)));
  if (x.latent > 0 && x.upcycle)
    fail("model.moe.latent",
         fmt::format("{} is not supported with model.moe.upcycle: the dense model's feed-forward network has "
                     "width {}",
                     x.latent, r.model.embed),
         "0");
}

void some_block_has_experts(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  const int64_t layers = r.model.layers;
  if (x.experts == 0 || x.first_dense + x.every <= layers) return;
  const bool dense = x.every <= layers;  // too many dense blocks, rather than too few others
  fail(dense ? "model.moe.first_dense" : "model.moe.every",
       fmt::format("first_dense {} and every {} leave none of the {} blocks with experts", x.first_dense,
                   x.every, layers),
       fmt::format("{}", dense ? layers - x.every : std::max<int64_t>(1, layers - x.first_dense)));
}

void groups_fit_experts(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  if (x.experts == 0) return;
  if (x.experts % x.groups != 0)
    return fail("model.moe.groups",
                fmt::format("{} does not divide model.moe.experts {}", x.groups, x.experts),
                nearest_divisors(x.experts, x.groups));
  if (x.groups_kept > x.groups)
    return fail("model.moe.groups_kept",
                fmt::format("{} exceeds model.moe.groups {}", x.groups_kept, x.groups),
                fmt::format("{}", x.groups));
  const int64_t size = x.experts / x.groups;
  if (x.top_k >= 1 && x.top_k <= x.experts && x.groups_kept * size < x.top_k)
    fail("model.moe.groups_kept",
         fmt::format("{} groups of {} experts are fewer than model.moe.top_k {}", x.groups_kept, size,
                     x.top_k),
         fmt::format("{}", (x.top_k + size - 1) / size));
  if (x.bias_rate > 0 && x.groups > 1 && size < 2)
    fail("model.moe.groups",
         fmt::format("{} groups of 1 expert: with bias_rate, a group is scored by its best two experts",
                     x.groups),
         fmt::format("{}", x.experts % 2 == 0 ? x.experts / 2 : 1));
}

void router_keys_fit(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  if (x.experts == 0 || x.order == RouterOrder::ScoreFirst) return;
  if (x.score != RouterScore::Softmax)
    fail("model.moe.order",
         fmt::format(
             "\"top_k_first\" is a softmax over the selected experts, which contradicts score = \"{}\"",
             name_of(x.score)),
         "\"score_first\"");
  if (!x.normalise)
    fail("model.moe.normalise", "has no effect with order = \"top_k_first\", whose weights sum to 1", "true");
  if (x.bias_rate > 0)
    fail("model.moe.bias_rate",
         fmt::format("{} shifts scores, but order = \"top_k_first\" selects before scoring", x.bias_rate),
         "0, or order \"score_first\"");
}

void balance_keys_fit(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  static constexpr std::pair<const char*, BalanceScope> kFurther[] = {
      {"model.moe.balance.micro_batch", BalanceScope::MicroBatch},
      {"model.moe.balance.sequence", BalanceScope::Sequence},
      {"model.moe.balance.global", BalanceScope::Global}};
  for (const auto& [key, scope] : kFurther) {
    const double coefficient = x.balance.over(scope);
    if (x.experts == 0 || coefficient == 0) continue;
    if (x.balance_loss == 0)
      fail(key,
           fmt::format("{} adds to model.moe.balance_loss, which is 0: a single balance loss is given there",
                       coefficient),
           fmt::format("balance_loss = {} with balance_scope = \"{}\"", coefficient, name_of(scope)));
    else if (scope == x.balance_scope)
      fail(key,
           fmt::format("{} is a second coefficient for the scope of model.moe.balance_loss {}", coefficient,
                       x.balance_loss),
           fmt::format("balance_loss = {} alone, or another balance_scope", x.balance_loss));
  }
  if (x.experts > 0 && x.balance_loss == 0)
    idle(fail, "model.moe.balance_scope", x.balance_scope, kDefaultMoe.balance_scope,
         "with model.moe.balance_loss = 0");
  if (x.experts > 0 && x.shared_ffn == 0)
    idle(fail, "model.moe.shared_gate", x.shared_gate, false, "with model.moe.shared_ffn = 0");
}

void capacity_keys_fit(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  if (x.experts == 0) return;
  if (x.capacity_factor == 0) {
    const std::string why = "with model.moe.capacity_factor = 0: nothing is dropped";
    idle(fail, "model.moe.drop", x.drop, kDefaultMoe.drop, why);
    idle(fail, "model.moe.capacity_group", x.capacity_group, kDefaultMoe.capacity_group, why);
    idle(fail, "model.moe.eval_capacity_factor", x.eval_capacity_factor, kDefaultMoe.eval_capacity_factor,
         why);
    idle(fail, "model.moe.min_capacity", x.min_capacity, kDefaultMoe.min_capacity, why);
    if (x.pad)
      fail("model.moe.pad", "pads to a capacity, but model.moe.capacity_factor is 0",
           "false, or capacity_factor 1.25");
  } else if (x.min_capacity > x.capacity_group * r.data.seq_len) {
    fail("model.moe.min_capacity",
         fmt::format(
             "{} exceeds the {} tokens of a capacity group (model.moe.capacity_group {} x data.seq_len {})",
             x.min_capacity, x.capacity_group * r.data.seq_len, x.capacity_group, r.data.seq_len),
         fmt::format("{} or less", x.capacity_group * r.data.seq_len));
  } else if (r.batch.micro % x.capacity_group != 0) {
    fail("model.moe.capacity_group",
         fmt::format("{} does not divide batch.micro {}", x.capacity_group, r.batch.micro),
         nearest_divisors(r.batch.micro, x.capacity_group));
  }
}

// ---- latent attention

void latent_keys_fit(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  const Mla& a = m.mla;
  if (a.kv_rank == 0) {
    const std::string why = "with model.mla.kv_rank = 0, which selects ordinary attention";
    idle(fail, "model.mla.q_rank", a.q_rank, kDefaultMla.q_rank, why);
    idle(fail, "model.mla.nope_dim", a.nope_dim, kDefaultMla.nope_dim, why);
    idle(fail, "model.mla.rope_dim", a.rope_dim, kDefaultMla.rope_dim, why);
    idle(fail, "model.mla.v_dim", a.v_dim, kDefaultMla.v_dim, why);
    return;
  }
  const auto positive = [&](const char* key, int64_t value, const char* near) {
    if (value < 1) fail(key, "is required by latent attention (model.mla.kv_rank)", near);
    return value > 0;
  };
  const bool dims = positive("model.mla.nope_dim", a.nope_dim, "128") &
                    positive("model.mla.rope_dim", a.rope_dim, "64") &
                    positive("model.mla.v_dim", a.v_dim, "128");
  if (a.rope_dim % 2 != 0)
    fail("model.mla.rope_dim", fmt::format("{} is odd; RoPE rotates pairs of features", a.rope_dim),
         nearest_multiples(2, a.rope_dim));
  const std::string why = "with latent attention (model.mla.kv_rank)";
  idle(fail, "model.qkv_bias", m.qkv_bias, false, why);
  idle(fail, "model.qk_norm", m.qk_norm, false, why);
  if (m.kv_heads != m.heads)
    fail("model.kv_heads", fmt::format("{} must equal model.heads {} {}", m.kv_heads, m.heads, why),
         fmt::format("{}", m.heads));
  if (dims && m.head_dim != a.nope_dim + a.rope_dim)
    fail("model.head_dim",
         fmt::format("{} must be model.mla.nope_dim {} + rope_dim {} = {}", m.head_dim, a.nope_dim,
                     a.rope_dim, a.nope_dim + a.rope_dim),
         "leave it out");
}

// ---- multi-token prediction

void further_predictions_are_supported(const Recipe& r, const Fail& fail) {
  const Mtp& mtp = r.model.mtp;
  if (mtp.layers > 1)
    fail("model.mtp.layers",
         fmt::format("{} is not supported: one block predicts one further token", mtp.layers), "1");
  if (mtp.layers > 0 && r.precision.fp8_head)
    fail("precision.fp8_head", "is not supported with model.mtp: the head has two losses", "false");
  if (mtp.layers == 0) idle(fail, "model.mtp.loss", mtp.loss, Mtp().loss, "with model.mtp.layers = 0");
}

// ---- variations of blocks

void parallel_blocks_only_in_neox(const Recipe& r, const Fail& fail) {
  if (r.model.family != Family::Neox)
    idle(fail, "model.parallel_blocks", r.model.parallel_blocks, false,
         fmt::format("in family {}", name_of(r.model.family)));
  if (r.model.family != Family::Neox && r.model.family != Family::Bert)
    idle(fail, "model.gelu_tanh", r.model.gelu_tanh, false,
         fmt::format("in family {}", name_of(r.model.family)));
}

void activation_fits_blocks(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  const bool experts = m.moe.experts > 0;
  if (m.activation == Activation::Gelu && experts)
    fail("model.activation", "\"gelu\" is not supported in blocks with experts", "\"silu\"");
  if (m.activation == Activation::Clamped && (!experts || m.has_dense_block() || m.moe.shared_ffn > 0))
    fail("model.activation", "\"clamped\" requires experts in every block, none of them shared", "\"silu\"");
  if (m.activation == Activation::Clamped) return;
  const Model d;
  idle(fail, "model.activation_alpha", m.activation_alpha, d.activation_alpha,
       "unless activation is clamped");
  idle(fail, "model.activation_limit", m.activation_limit, d.activation_limit,
       "unless activation is clamped");
}

void scaled_inputs_have_one_expert(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  if (!x.scale_input) return;
  if (x.top_k != 1)
    fail("model.moe.top_k", fmt::format("{} must be 1 with model.moe.scale_input", x.top_k), "1");
  if (x.score != RouterScore::Sigmoid || !x.normalise)
    fail("model.moe.score", "must be \"sigmoid\", normalised, with model.moe.scale_input", "\"sigmoid\"");
}

void upcycling_needs_a_folder(const Recipe& r, const Fail& fail) {
  if (r.model.moe.upcycle && r.model.hf.empty())
    fail("model.moe.upcycle", "has no effect without model.hf, the folder of a dense model", "false");
}

// A token then chooses whole copies of the dense network, whose slices have equal weights.
void slices_are_chosen_together(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  const int64_t n = x.upcycle_slices;
  if (x.experts == 0 || n <= 1) return;  // below 1: reported by a limit
  if (!x.upcycle)
    return idle(fail, "model.moe.upcycle_slices", n, int64_t{1}, "with model.moe.upcycle = false");
  const auto require = [&](const char* key, int64_t value) {
    if (value % n == 0) return;
    fail(key, fmt::format("{} must be a multiple of model.moe.upcycle_slices {}", value, n),
         nearest_multiples(n, value));
  };
  require("model.moe.experts", x.experts);
  require("model.moe.top_k", x.top_k);
  if (!x.normalise)
    fail("model.moe.normalise", "must be true with model.moe.upcycle_slices: slices have equal weights then",
         "true");
}

void rotary_dim_fits_heads(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.rotary_dim == 0) return;
  if (m.mla.kv_rank > 0)
    return idle(fail, "model.rotary_dim", m.rotary_dim, int64_t{0},
                "with latent attention, which rotates model.mla.rope_dim features");
  if (m.rotary_dim % 2 != 0 || m.rotary_dim > m.head_dim)
    fail("model.rotary_dim",
         fmt::format("{} must be even and at most model.head_dim {}", m.rotary_dim, m.head_dim),
         fmt::format("{}", std::max<int64_t>(2, std::min(m.rotary_dim / 2 * 2, m.head_dim / 2 * 2))));
}

void block_parts_only_in_llama(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Llama) return;
  const std::string why = fmt::format("in family {}", name_of(m.family));
  idle(fail, "model.out_bias", m.out_bias, false, why + ", which always has biases");
  idle(fail, "model.qk_unit_norm", m.qk_unit_norm, false, why);
  idle(fail, "model.clip_qkv", m.clip_qkv, 0.0, why);
  idle(fail, "model.centered_norms", m.centered_norms, false, why);
  idle(fail, "model.attention_sinks", m.attention_sinks, false, why);
  idle(fail, "model.attention_chunk", m.attention_chunk, int64_t{0}, why);
  idle(fail, "model.position_scale", m.position_scale, 0.0, why);
}

void block_patterns_are_consistent(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.sliding_window == 0)
    idle(fail, "model.full_attention_every", m.full_attention_every, int64_t{0},
         "without model.sliding_window: every block attends to all tokens");
  if (!m.full_attention_layers.empty()) {
    const std::vector<int64_t>& full = m.full_attention_layers;
    if (m.sliding_window == 0)
      fail("model.full_attention_layers",
           "has no effect without model.sliding_window: every block attends to all tokens", "[]");
    else if (m.full_attention_every > 0)
      fail("model.full_attention_layers",
           "and model.full_attention_every both say which blocks ignore the window", "[]");
    for (size_t i = 0; i < full.size(); ++i)
      if (full[i] >= m.layers || (i > 0 && full[i] <= full[i - 1])) {
        fail("model.full_attention_layers",
             fmt::format(
                 "must be numbers of the {} blocks, counted from 0, in ascending order; got {} as number {}",
                 m.layers, full[i], i + 1),
             "[0]");
        break;
      }
  }
  if (m.sliding_window == 0)
    idle(fail, "model.local_rope_theta", m.local_rope_theta, 0.0,
         "without model.sliding_window: no block has a window");
  if (m.local_rope_theta != 0 && !(m.local_rope_theta > 1))
    fail("model.local_rope_theta", fmt::format("{} must be greater than 1, or 0", m.local_rope_theta),
         "10000");
  if (!m.qk_norm)
    idle(fail, "model.qk_norm_over", m.qk_norm_over, QkNormOver::Head, "with model.qk_norm = false");
  if (m.sliding_window > 0)
    idle(fail, "model.attention_chunk", m.attention_chunk, int64_t{0}, "with model.sliding_window");
  if (m.no_rope_every == 0)
    idle(fail, "model.position_scale", m.position_scale, 0.0,
         "with model.no_rope_every = 0: every block has RoPE");
  if (m.rope_scaling.kind != RopeScalingKind::Yarn)
    idle(fail, "model.rope_scaling.truncate", m.rope_scaling.truncate, true,
         "unless model.rope_scaling.kind is yarn");
  if (m.position_scale == 0)
    idle(fail, "model.position_floor", m.position_floor, int64_t{8192}, "without model.position_scale");
  if (m.centered_norms)
    idle(fail, "model.qk_norm", m.qk_norm, false,
         "with model.centered_norms, which norms of Q and K do not have");
  if (m.init == InitScheme::Neox)
    idle(fail, "model.init_stddev", m.init_stddev, 0.02, "with model.init = \"neox\"");
  if (m.mla.kv_rank == 0) return;
  const std::string why = "with latent attention (model.mla.kv_rank)";
  idle(fail, "model.out_bias", m.out_bias, false, why);
  idle(fail, "model.qk_unit_norm", m.qk_unit_norm, false, why);
  idle(fail, "model.centered_norms", m.centered_norms, false, why);
  idle(fail, "model.clip_qkv", m.clip_qkv, 0.0, why);
  idle(fail, "model.attention_sinks", m.attention_sinks, false, why);
  idle(fail, "model.attention_chunk", m.attention_chunk, int64_t{0}, why);
  idle(fail, "model.local_rope_theta", m.local_rope_theta, 0.0, why);
  idle(fail, "model.no_rope_every", m.no_rope_every, int64_t{0}, why);
  idle(fail, "model.attention_scale", m.attention_scale, 0.0, why);
  idle(fail, "model.attention_soft_cap", m.attention_soft_cap, 0.0, why);
}

}  // namespace

std::vector<Rule> block_rules() {
  return {
      {"model.parallel_blocks requires family neox", {"model.family"}, parallel_blocks_only_in_neox},
      {"model.mtp keys are consistent",
       {"model.mtp.layers", "model.mtp.loss", "precision.fp8_head"},
       further_predictions_are_supported},
      {"model.activation fits the blocks",
       {"model.family", "model.activation", "model.moe.experts", "model.moe.every", "model.moe.first_dense"},
       activation_fits_blocks},
      {"model.moe.scale_input requires one expert per token",
       {"model.moe.experts", "model.moe.scale_input", "model.moe.top_k"},
       scaled_inputs_have_one_expert},
      {"model.moe.upcycle requires model.hf", {"model.hf", "model.moe.upcycle"}, upcycling_needs_a_folder},
      {"model.moe.upcycle_slices divides experts and choices",
       {"model.moe.upcycle", "model.moe.upcycle_slices", "model.moe.experts", "model.moe.top_k",
        "model.moe.normalise"},
       slices_are_chosen_together},
      {"model.rotary_dim is even and fits model.head_dim",
       {"model.family", "model.rotary_dim", "model.head_dim", "model.mla.kv_rank"},
       rotary_dim_fits_heads},
      {"parts of blocks belong to family llama", {"model.family"}, block_parts_only_in_llama},
      {"keys of single blocks match the rest of the model",
       {"model.family", "model.sliding_window", "model.full_attention_every", "model.local_rope_theta",
        "model.full_attention_layers", "model.layers", "model.no_rope_every", "model.qk_norm",
        "model.qk_norm_over", "model.mla.kv_rank", "model.position_scale", "model.attention_chunk",
        "model.init"},
       block_patterns_are_consistent},
  };
}

std::vector<Rule> expert_rules() {
  return {
      {"model.moe keys require experts", {"model.moe.experts", "model.family"}, expert_keys_need_experts},
      {"model.moe sizes are complete",
       {"model.moe.experts", "model.moe.top_k", "model.moe.ffn", "model.ffn", "model.moe.latent",
        "model.moe.upcycle", "model.embed"},
       experts_are_complete},
      {"some block has experts",
       {"model.moe.experts", "model.moe.first_dense", "model.moe.every", "model.layers"},
       some_block_has_experts},
      {"model.moe.groups match the experts",
       {"model.moe.experts", "model.moe.groups", "model.moe.groups_kept", "model.moe.top_k",
        "model.moe.bias_rate"},
       groups_fit_experts},
      {"router keys are consistent",
       {"model.moe.experts", "model.moe.order", "model.moe.score", "model.moe.normalise",
        "model.moe.bias_rate"},
       router_keys_fit},
      {"balance keys are consistent",
       {"model.moe.experts", "model.moe.balance_loss", "model.moe.balance_scope", "model.moe.shared_ffn",
        "model.moe.shared_gate", "model.moe.balance.micro_batch", "model.moe.balance.sequence",
        "model.moe.balance.global"},
       balance_keys_fit},
      {"capacity keys are consistent",
       {"model.moe.experts", "model.moe.capacity_factor", "model.moe.drop", "model.moe.capacity_group",
        "model.moe.pad", "model.moe.eval_capacity_factor", "model.moe.min_capacity", "batch.micro",
        "data.seq_len"},
       capacity_keys_fit},
  };
}

std::vector<Rule> latent_attention_rules() {
  return {
      {"model.mla keys are consistent",
       {"model.mla.kv_rank", "model.mla.nope_dim", "model.mla.rope_dim", "model.mla.v_dim", "model.heads",
        "model.kv_heads", "model.head_dim"},
       latent_keys_fit},
  };
}

}  // namespace quintet::config
