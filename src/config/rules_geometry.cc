// Rules for the sizes of a model: vocabulary, heads, positions.
#include <string>

#include "base/printable.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/rule.h"
#include "config/tokenizer_size.h"

namespace quintet::config {
namespace {

const Model kDefaultModel;

void vocab_covers_tokenizer(const Recipe& r, const Fail& fail) {
  const int64_t ids = ids_needed(r.data.tokenizer, r.model.family),
                own = tokenizer_size(r.data.tokenizer).ids;
  if (r.model.vocab < ids)
    fail("model.vocab",
         fmt::format("{} is too small for data.tokenizer = \"{}\", which has {} tokens{}", r.model.vocab,
                     base::printable(r.data.tokenizer), own,
                     ids > own ? " and needs one more for the mask" : ""),
         fmt::format("{}", ids));
}

void kv_heads_divide_heads(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.heads % m.kv_heads != 0)
    fail("model.kv_heads", fmt::format("{} does not divide model.heads {}", m.kv_heads, m.heads),
         nearest_divisors(m.heads, m.kv_heads));
}

void head_dim_is_even(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (!has_learned_positions(m.family) && m.mla.kv_rank == 0 && m.head_dim % 2 != 0)
    fail("model.head_dim", fmt::format("{} is odd; RoPE rotates pairs of features", m.head_dim),
         nearest_multiples(2, m.head_dim));
}

void gpt2_heads_make_embed(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (!has_learned_positions(m.family) || m.heads * m.head_dim == m.embed) return;
  fail("model.embed",
       fmt::format("{} must be model.heads {} x model.head_dim {} = {} in family {}", m.embed, m.heads,
                   m.head_dim, m.heads * m.head_dim, name_of(m.family)),
       fmt::format("{}", m.heads * m.head_dim));
}

void gpt2_has_no_gqa(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family != Family::Llama && m.kv_heads != m.heads)
    fail("model.kv_heads",
         fmt::format("{} must equal model.heads {} in family {}", m.kv_heads, m.heads, name_of(m.family)),
         fmt::format("{}", m.heads));
}

void llama_keys_only_for_llama(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Llama) return;
  const std::string why = fmt::format("in family {}", name_of(m.family));
  if (has_learned_positions(m.family)) {
    idle(fail, "model.rope_theta", m.rope_theta, 0.0, why);
    idle(fail, "model.rotary_dim", m.rotary_dim, int64_t{0}, why);
    idle(fail, "model.rope_scaling.kind", m.rope_scaling.kind, RopeScalingKind::None, why);
  }
  idle(fail, "model.local_rope_theta", m.local_rope_theta, 0.0, why);
  idle(fail, "model.no_rope_every", m.no_rope_every, int64_t{0}, why);
  idle(fail, "model.norms", m.norms, NormPlaces::Pre, why);
  idle(fail, "model.norm_offset", m.norm_offset, 0.0, why);
  idle(fail, "model.sliding_window", m.sliding_window, int64_t{0}, why);
  idle(fail, "model.qkv_bias", m.qkv_bias, false, why + ", which always has biases");
  idle(fail, "model.qk_norm", m.qk_norm, false, why);
  idle(fail, "model.activation", m.activation, Activation::Silu, why);
  idle(fail, "model.embed_scale", m.embed_scale, 1.0, why);
  idle(fail, "model.attention_scale", m.attention_scale, 0.0, why);
  idle(fail, "model.attention_soft_cap", m.attention_soft_cap, 0.0, why);
  idle(fail, "model.logit_soft_cap", m.logit_soft_cap, 0.0, why);
  idle(fail, "model.moe.experts", m.moe.experts, int64_t{0}, why);
  idle(fail, "model.mla.kv_rank", m.mla.kv_rank, int64_t{0}, why);
  idle(fail, "model.mtp.layers", m.mtp.layers, int64_t{0}, why);
}

void gpt2_keys_only_for_gpt2(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (has_learned_positions(m.family)) return;
  const std::string why = fmt::format("in family {}", name_of(m.family));
  idle(fail, "model.max_positions", m.max_positions, int64_t{0}, why + ", which has rotary positions");
  idle(fail, "model.dropout", m.dropout, 0.0, why);
}

void sequence_fits_positions(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (!has_learned_positions(m.family)) return;
  if (m.max_positions == 0)
    fail("model.max_positions",
         fmt::format("is required: family {} has learned positions", name_of(m.family)),
         fmt::format("{} (data.seq_len)", r.data.seq_len));
  else if (r.data.seq_len > m.max_positions)
    fail("data.seq_len", fmt::format("{} exceeds model.max_positions {}", r.data.seq_len, m.max_positions),
         fmt::format("{}", m.max_positions));
}

void bert_keys_only_for_bert(const Recipe& r, const Fail& fail) {
  if (r.model.family == Family::Bert) return;
  const std::string why = fmt::format("in family {}", name_of(r.model.family));
  idle(fail, "model.token_types", r.model.token_types, int64_t{0}, why);
  const Mlm &given = r.data.mlm, none;
  idle(fail, "data.mlm.rate", given.rate, none.rate, why + ", which predicts the next token");
  idle(fail, "data.mlm.random", given.random, none.random, why);
  idle(fail, "data.mlm.keep", given.keep, none.keep, why);
  idle(fail, "data.mlm.mask", given.mask, none.mask, why);
}

void encoders_run_on_cpus(const Recipe& r, const Fail& fail) {
  if (r.model.family == Family::Bert && r.run.device == DeviceKind::Cuda)
    fail("run.device",
         "\"cuda\" is not supported yet in family bert: on GPUs, attention hides later tokens, which an "
         "encoder attends to",
         "\"cpu\"");
}

void rope_theta_is_above_one(const Recipe& r, const Fail& fail) {
  if (!has_learned_positions(r.model.family) && !(r.model.rope_theta > 1))
    fail("model.rope_theta",
         fmt::format("{} must be greater than 1: frequencies decrease along head_dim", r.model.rope_theta),
         "10000");
}

void rope_scaling_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  const RopeScaling& d = kDefaultModel.rope_scaling;
  const std::string why = fmt::format("with model.rope_scaling.kind = \"{}\"", name_of(s.kind));
  if (s.kind == RopeScalingKind::None) idle(fail, "model.rope_scaling.factor", s.factor, d.factor, why);
  if (s.kind == RopeScalingKind::None || s.kind == RopeScalingKind::Linear)
    idle(fail, "model.rope_scaling.original_positions", s.original_positions, d.original_positions, why);
  if (s.kind != RopeScalingKind::Llama3) {
    idle(fail, "model.rope_scaling.low_freq_factor", s.low_freq_factor, d.low_freq_factor, why);
    idle(fail, "model.rope_scaling.high_freq_factor", s.high_freq_factor, d.high_freq_factor, why);
  }
  if (s.kind != RopeScalingKind::Yarn) {
    idle(fail, "model.rope_scaling.beta_fast", s.beta_fast, d.beta_fast, why);
    idle(fail, "model.rope_scaling.beta_slow", s.beta_slow, d.beta_slow, why);
  }
  if (s.kind != RopeScalingKind::Yarn && s.kind != RopeScalingKind::Longrope)
    idle(fail, "model.rope_scaling.attention_factor", s.attention_factor, d.attention_factor, why);
  if (s.kind != RopeScalingKind::Longrope) {
    if (!s.short_factors.empty()) fail("model.rope_scaling.short_factors", "has no effect " + why, "[]");
    if (!s.long_factors.empty()) fail("model.rope_scaling.long_factors", "has no effect " + why, "[]");
    idle(fail, "model.rope_scaling.positions", s.positions, d.positions, why);
  }
}

void longrope_has_its_factors(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  const RopeScaling& s = m.rope_scaling;
  if (s.kind != RopeScalingKind::Longrope) return;
  if (m.mla.kv_rank > 0)
    return fail("model.rope_scaling.kind", "\"longrope\" is not supported with latent attention", "\"yarn\"");
  const int64_t pairs = (m.rotary_dim > 0 ? m.rotary_dim : m.head_dim) / 2;
  const auto check = [&](const char* key, const std::vector<double>& factors) {
    if (std::ssize(factors) != pairs)
      fail(key,
           fmt::format("needs one factor for each of the {} rotated pairs of a head, got {}", pairs,
                       factors.size()),
           fmt::format("{} factors", pairs));
  };
  check("model.rope_scaling.short_factors", s.short_factors);
  check("model.rope_scaling.long_factors", s.long_factors);
}

void rope_scaling_knows_its_origin(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  const bool extends = s.kind != RopeScalingKind::None && s.kind != RopeScalingKind::Linear;
  if (extends && s.original_positions == 0)
    fail("model.rope_scaling.original_positions",
         fmt::format("is required: \"{}\" needs the context length before the extension", name_of(s.kind)),
         "8192");
}

void rope_scaling_band_is_ordered(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  if (s.kind == RopeScalingKind::Llama3 && s.low_freq_factor > s.high_freq_factor)
    fail("model.rope_scaling.low_freq_factor",
         fmt::format("{} must be at most high_freq_factor {}", s.low_freq_factor, s.high_freq_factor),
         "1 with 4");
  if (s.kind == RopeScalingKind::Yarn && s.beta_slow >= s.beta_fast)
    fail("model.rope_scaling.beta_slow",
         fmt::format("{} must be less than beta_fast {}", s.beta_slow, s.beta_fast), "1 with 32");
}

}  // namespace

std::vector<Rule> geometry_rules() {
  return {
      {"model.vocab covers the tokenizer", {"model.vocab", "data.tokenizer"}, vocab_covers_tokenizer},
      {"model.kv_heads divides model.heads", {"model.heads", "model.kv_heads"}, kv_heads_divide_heads},
      {"model.head_dim is even", {"model.family", "model.head_dim", "model.mla.kv_rank"}, head_dim_is_even},
      {"gpt2, bert: model.embed = heads x head_dim",
       {"model.family", "model.embed", "model.heads", "model.head_dim"},
       gpt2_heads_make_embed},
      {"gpt2, neox, bert: model.kv_heads = model.heads",
       {"model.family", "model.heads", "model.kv_heads"},
       gpt2_has_no_gqa},
      {"llama keys are used only in family llama", {"model.family"}, llama_keys_only_for_llama},
      {"learned positions and dropout are used only in families gpt2 and bert",
       {"model.family"},
       gpt2_keys_only_for_gpt2},
      {"bert keys are used only in family bert", {"model.family"}, bert_keys_only_for_bert},
      {"family bert runs on CPUs", {"model.family", "run.device"}, encoders_run_on_cpus},
      {"data.seq_len fits model.max_positions",
       {"model.family", "model.max_positions", "data.seq_len"},
       sequence_fits_positions},
      {"model.rope_theta is greater than 1", {"model.family", "model.rope_theta"}, rope_theta_is_above_one},
      {"model.rope_scaling keys match its kind", {"model.rope_scaling.kind"}, rope_scaling_keys_fit_kind},
      {"model.rope_scaling.original_positions is set",
       {"model.rope_scaling.kind", "model.rope_scaling.original_positions"},
       rope_scaling_knows_its_origin},
      {"longrope has a factor for every rotated pair",
       {"model.rope_scaling.kind", "model.rope_scaling.short_factors", "model.rope_scaling.long_factors",
        "model.rotary_dim", "model.head_dim", "model.mla.kv_rank"},
       longrope_has_its_factors},
      {"model.rope_scaling limits are ordered",
       {"model.rope_scaling.kind", "model.rope_scaling.low_freq_factor",
        "model.rope_scaling.high_freq_factor", "model.rope_scaling.beta_fast",
        "model.rope_scaling.beta_slow"},
       rope_scaling_band_is_ordered},
  };
}

}  // namespace quintet::config
