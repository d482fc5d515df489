// Multi-head latent attention (DeepSeek): K and V of all heads, and optionally Q, are projected from one
// narrow latent. Positions are encoded in a separate rotary part, which for K is shared by all heads. The
// parts have their own weights, so nothing is ever sliced.
#include <cmath>

#include "models/families.h"
#include "models/rope_frequencies.h"

namespace quintet::models {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

ValueId latent_attention(Builder& b, const config::Model& m, ValueId x, const std::string& name) {
  const config::Mla& a = m.mla;
  const DimSize embed{Dim::Embed, m.embed}, heads{Dim::Heads, m.heads}, kv_heads{Dim::KvHeads, m.kv_heads};
  const DimSize nope{Dim::HeadDim, a.nope_dim}, rope{Dim::HeadDim, a.rope_dim}, v_dim{Dim::HeadDim, a.v_dim};
  const DimSize q_latent{Dim::Latent, a.q_rank}, kv_latent{Dim::Latent, a.kv_rank};
  const auto weight = [&](const char* word, std::vector<DimSize> dims) {
    return b.weight(name + word + ".weight", std::move(dims), init_stddev(m));
  };
  const auto compress = [&](const char* word, const char* norm, DimSize latent) {
    const ValueId y = b.linear(x, weight(word, {latent, embed}));
    return b.rms_norm(y, b.norm_weight(name + norm + ".weight", latent), m.norm_eps);
  };
  // YaRN's attention factor applies to both rotated operands of QK^T; here it scales all of QK^T, including
  // the part without positions.
  const RopeFrequencies turn = rope_frequencies(m.rope_theta, a.rope_dim, m.rope_scaling);
  const double scale = turn.scale * turn.scale / std::sqrt(static_cast<double>(a.nope_dim + a.rope_dim));

  const ValueId q_in = a.q_rank > 0 ? compress("wq_down", "q_norm", q_latent) : x;
  const DimSize from = a.q_rank > 0 ? q_latent : embed;
  const ValueId q_nope = b.linear(q_in, weight("wq_nope", {heads, nope, from}));
  const ValueId q_rope = b.rope(b.linear(q_in, weight("wq_rope", {heads, rope, from})), turn.inv_freq);

  const ValueId latent = compress("wkv_down", "kv_norm", kv_latent);
  const ValueId k_nope = b.linear(latent, weight("wk_nope", {kv_heads, nope, kv_latent}));
  const ValueId v = b.linear(latent, weight("wv", {kv_heads, v_dim, kv_latent}));
  const ValueId k_rope =
      b.rope(b.linear(x, weight("wk_rope", {{Dim::Choices, 1}, rope, embed})), turn.inv_freq);

  const ValueId o = b.attention(b.join_heads(q_nope, q_rope), b.join_heads(k_nope, k_rope), v,
                                {.window = m.sliding_window, .scale = scale});
  return b.linear(o, b.weight(name + "wo.weight", {embed, heads, v_dim}, residual_stddev(m)));
}

}  // namespace quintet::models
