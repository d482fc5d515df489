// Llama and related models: pre-norm RMSNorm, rotary positions, grouped-query attention, SwiGLU. Mistral adds
// a sliding window, Qwen2 biases on Q, K and V, Qwen3 an RMSNorm over each head of Q and K before the
// rotation. Mixtral, Qwen-MoE and DeepSeek replace the feed-forward network of some or all blocks by experts
// (experts.cc); DeepSeek also replaces attention (latent_attention.cc).
#include <fmt/format.h>

#include <cmath>

#include "models/families.h"
#include "models/rope_frequencies.h"

namespace quintet::models {
namespace {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

class Llama {
 public:
  Llama(Builder& builder, const config::Model& model) : b_(builder), m_(model) {
    if (!latent()) rope_ = rope_frequencies(model.rope_theta, model.head_dim, model.rope_scaling);
  }

  void build() {
    const ValueId table = b_.weight("embed.weight", {vocab(), embed()}, kInitStddev);
    ValueId x = b_.embedding(table, b_.ids());
    for (int64_t i = 0; i < m_.layers; ++i) {
      b_.next_block();
      const std::string name = fmt::format("blocks.{}.", i);
      const ValueId a = norm(x, name + "attn_norm.weight", embed());
      x = b_.add(x, latent() ? latent_attention(b_, m_, a, name + "attn.") : attention(a, name + "attn."));
      const ValueId f = norm(x, name + "ffn_norm.weight", embed());
      x = b_.add(x, m_.moe.in_block(i) ? expert_feed_forward(b_, m_, f, name + "ffn.")
                                       : dense_feed_forward(b_, m_, f, m_.ffn, name + "ffn."));
    }
    b_.next_block();
    x = norm(x, "final_norm.weight", embed());
    b_.head(x, m_.tied ? table : b_.weight("head.weight", {vocab(), embed()}, kInitStddev));
  }

 private:
  bool latent() const { return m_.mla.kv_rank > 0; }
  DimSize vocab() const { return {Dim::Vocab, m_.vocab}; }
  DimSize embed() const { return {Dim::Embed, m_.embed}; }
  DimSize heads() const { return {Dim::Heads, m_.heads}; }
  DimSize kv_heads() const { return {Dim::KvHeads, m_.kv_heads}; }
  DimSize head_dim() const { return {Dim::HeadDim, m_.head_dim}; }

  ValueId norm(ValueId x, const std::string& weight, DimSize dim) {
    return b_.rms_norm(x, b_.norm_weight(weight, dim), m_.norm_eps);
  }

  ValueId attention(ValueId x, const std::string& name) {
    // Q, K and V are declared consecutively, so that a layout can store them contiguously.
    const ValueId wq = b_.weight(name + "wq.weight", {heads(), head_dim(), embed()}, kInitStddev);
    const ValueId wk = b_.weight(name + "wk.weight", {kv_heads(), head_dim(), embed()}, kInitStddev);
    const ValueId wv = b_.weight(name + "wv.weight", {kv_heads(), head_dim(), embed()}, kInitStddev);
    ValueId q = b_.linear(x, wq), k = b_.linear(x, wk), v = b_.linear(x, wv);
    if (m_.qkv_bias) {
      q = b_.bias_add(q, b_.bias(name + "wq.bias", {heads(), head_dim()}));
      k = b_.bias_add(k, b_.bias(name + "wk.bias", {kv_heads(), head_dim()}));
      v = b_.bias_add(v, b_.bias(name + "wv.bias", {kv_heads(), head_dim()}));
    }
    if (m_.qk_norm) {
      q = norm(q, name + "q_norm.weight", head_dim());
      k = norm(k, name + "k_norm.weight", head_dim());
    }
    q = b_.rope(q, rope_.inv_freq, rope_.scale);
    k = b_.rope(k, rope_.inv_freq, rope_.scale);
    const double scale = 1.0 / std::sqrt(static_cast<double>(m_.head_dim));
    const ValueId o = b_.attention(q, k, v, {.window = m_.sliding_window, .scale = scale});
    return b_.linear(o, b_.weight(name + "wo.weight", {embed(), heads(), head_dim()}, residual_stddev(m_)));
  }

  Builder& b_;
  const config::Model& m_;
  RopeFrequencies rope_;
};

}  // namespace

ValueId dense_feed_forward(Builder& b, const config::Model& m, ValueId x, int64_t ffn,
                           const std::string& name) {
  const DimSize inner{Dim::Ffn, ffn}, embed{Dim::Embed, m.embed};
  const ValueId gate = b.weight(name + "gate.weight", {inner, embed}, kInitStddev);
  const ValueId up = b.weight(name + "up.weight", {inner, embed}, kInitStddev);
  const ValueId gated = b.linear(x, gate), raised = b.linear(x, up);
  return b.linear(b.swiglu(gated, raised),
                  b.weight(name + "down.weight", {embed, inner}, residual_stddev(m)));
}

void build_llama(Builder& builder, const config::Model& model) { Llama(builder, model).build(); }

}  // namespace quintet::models
