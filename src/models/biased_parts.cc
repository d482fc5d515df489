// What families with LayerNorm and biases everywhere (gpt2.cc, bert.cc) have in common.
#include <cmath>

#include "models/families.h"

namespace quintet::models {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

ValueId layer_norm(Builder& b, const config::Model& m, ValueId x, const std::string& name) {
  const DimSize embed{Dim::Embed, m.embed};
  const ValueId weight = b.norm_weight(name + "weight", embed);
  return b.layer_norm(x, weight, b.bias(name + "bias", {embed}), m.norm_eps);
}

ValueId biased_attention(Builder& b, const config::Model& m, ValueId x, const std::string& name,
                         const BiasedAttention& options) {
  const DimSize embed{Dim::Embed, m.embed}, heads{Dim::Heads, m.heads}, kv_heads{Dim::KvHeads, m.kv_heads},
      head_dim{Dim::HeadDim, m.head_dim};
  // Q, K and V are declared consecutively, so that a layout can store them contiguously.
  const ValueId wq = b.weight(name + "wq.weight", {heads, head_dim, embed}, init_stddev(m));
  const ValueId wk = b.weight(name + "wk.weight", {kv_heads, head_dim, embed}, init_stddev(m));
  const ValueId wv = b.weight(name + "wv.weight", {kv_heads, head_dim, embed}, init_stddev(m));
  ValueId q = b.linear(x, wq, b.bias(name + "wq.bias", {heads, head_dim}));
  ValueId k = b.linear(x, wk, b.bias(name + "wk.bias", {kv_heads, head_dim}));
  const ValueId v = b.linear(x, wv, b.bias(name + "wv.bias", {kv_heads, head_dim}));
  if (const RopeFrequencies* r = options.rope)
    q = b.rope(q, r->inv_freq, r->scale), k = b.rope(k, r->inv_freq, r->scale);
  const ValueId o = b.attention(q, k, v,
                                {.scale = 1.0 / std::sqrt(static_cast<double>(m.head_dim)),
                                 .dropout = m.dropout,
                                 .both_sides = options.both_sides});
  const ValueId wo = b.weight(name + "wo.weight", {embed, heads, head_dim}, residual_stddev(m));
  return b.dropout(b.linear(o, wo, b.bias(name + "wo.bias", {embed})), m.dropout);
}

ValueId biased_feed_forward(Builder& b, const config::Model& m, ValueId x, const std::string& name,
                            Builder::GeluForm form) {
  const DimSize embed{Dim::Embed, m.embed}, ffn{Dim::Ffn, m.ffn};
  const ValueId up = b.weight(name + "up.weight", {ffn, embed}, init_stddev(m));
  const ValueId hidden = b.gelu(b.linear(x, up, b.bias(name + "up.bias", {ffn})), form);
  const ValueId down = b.weight(name + "down.weight", {embed, ffn}, residual_stddev(m));
  return b.dropout(b.linear(hidden, down, b.bias(name + "down.bias", {embed})), m.dropout);
}

}  // namespace quintet::models
