// Llama and related models: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward network.
// Mistral adds a sliding window, Qwen2 biases on Q, K and V, Qwen3 an RMSNorm over each head of Q and K
// before the rotation; OLMo 2 norms the outputs of attention and feed-forward network instead of their
// inputs, Gemma both; blocks of one model may differ in windows and rotation (Gemma, SmolLM3, Llama 4).
// GPT-OSS has attention sinks, DBRX norms with a mean and bounded Q, K and V. Mixtral,
// Qwen-MoE and DeepSeek replace the feed-forward network of some or all blocks by experts (experts.cc);
// DeepSeek also replaces attention (latent_attention.cc).
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
    if (latent()) return;
    const int64_t rotated = model.rotary_dim > 0 ? model.rotary_dim : model.head_dim;
    rope_ = rope_frequencies(model.rope_theta, rotated, model.rope_scaling);
    local_rope_ = model.local_rope_theta > 0 ? rope_frequencies(model.local_rope_theta, rotated, {}) : rope_;
  }

  void build() {
    const ValueId table = b_.weight("embed.weight", {vocab(), embed()}, init_stddev(m_));
    ValueId x = b_.scale(b_.embedding(table, b_.ids()), m_.embed_scale);
    for (int64_t i = 0; i < m_.layers; ++i) {
      b_.next_block();
      x = block(x, i);
    }
    b_.next_block();
    x = norm(x, "final_norm.weight", embed());
    ValueId predicted;
    if (m_.mtp.layers > 0) {
      if (b_.options().mode == graph::Mode::Train) predicted = predict_next(x, table);
      b_.next_block();
    }
    const ValueId head = m_.tied ? table : b_.weight("head.weight", {vocab(), embed()}, init_stddev(m_));
    if (predicted.valid()) b_.next_token_loss(predicted, head, m_.mtp.loss);
    b_.head(x, head, m_.logit_soft_cap);
  }

 private:
  ValueId block(ValueId x, int64_t i) {
    const std::string name = fmt::format("blocks.{}.", i);
    x = residual(x, name + "attn", [&](ValueId a) {
      return latent() ? latent_attention(b_, m_, a, name + "attn.") : attention(a, i, name + "attn.");
    });
    return residual(x, name + "ffn", [&](ValueId f) {
      return m_.moe.in_block(i) ? expert_feed_forward(b_, m_, f, name + "ffn.")
                                : dense_feed_forward(b_, m_, f, m_.ffn, name + "ffn.");
    });
  }

  // Multi-token prediction (DeepSeek-V3): one more block joins the model's output with the embedding of the
  // next token and predicts the one after it, with the model's own embedding and head. x has passed the final
  // norm, as in Megatron and vLLM. The final norm and the block have a label of their own before the head's,
  // in every mode, so that a pipeline may give them a stage.
  ValueId predict_next(ValueId x, ValueId table) {
    const std::string name = fmt::format("blocks.{}.", m_.layers);
    const auto joined = [&](ValueId part, const std::string& word) {
      return b_.linear(norm(part, name + word + "_norm.weight", embed()),
                       b_.weight(name + "join_" + word + ".weight", {embed(), embed()}, init_stddev(m_)));
    };
    const ValueId next = b_.scale(b_.embedding(table, b_.next_ids()), m_.embed_scale);
    ValueId y = b_.add(joined(next, "embed"), joined(x, "hidden"));
    return norm(block(y, m_.layers), name + "final_norm.weight", embed());
  }

  bool latent() const { return m_.mla.kv_rank > 0; }
  DimSize vocab() const { return {Dim::Vocab, m_.vocab}; }
  DimSize embed() const { return {Dim::Embed, m_.embed}; }
  DimSize heads() const { return {Dim::Heads, m_.heads}; }
  DimSize kv_heads() const { return {Dim::KvHeads, m_.kv_heads}; }
  DimSize head_dim() const { return {Dim::HeadDim, m_.head_dim}; }

  ValueId norm(ValueId x, const std::string& weight, DimSize dim, int whole = 1) {
    if (m_.centered_norms) x = b_.center(x);
    return b_.rms_norm(x, b_.norm_weight(weight, dim, m_.norm_offset), m_.norm_eps,
                       {.offset = m_.norm_offset, .whole = whole});
  }
  // Of q or k.
  ValueId head_norm(ValueId x, const std::string& weight, int64_t heads) {
    if (m_.qk_norm_over == config::QkNormOver::Head) return norm(x, weight, head_dim());
    return norm(x, weight, {Dim::Embed, heads * m_.head_dim}, 2);
  }

  // x plus a part of the block, which has norms before or after it.
  template <class Part>
  ValueId residual(ValueId x, const std::string& name, const Part& part) {
    ValueId y = m_.norms == config::NormPlaces::Post ? x : norm(x, name + "_norm.weight", embed());
    y = part(y);
    if (m_.norms != config::NormPlaces::Pre) y = norm(y, name + "_post_norm.weight", embed());
    return b_.add(x, y);
  }

  ValueId attention(ValueId x, int64_t block, const std::string& name) {
    // Q, K and V are declared consecutively, so that a layout can store them contiguously.
    const ValueId wq = b_.weight(name + "wq.weight", {heads(), head_dim(), embed()}, init_stddev(m_));
    const ValueId wk = b_.weight(name + "wk.weight", {kv_heads(), head_dim(), embed()}, init_stddev(m_));
    const ValueId wv = b_.weight(name + "wv.weight", {kv_heads(), head_dim(), embed()}, init_stddev(m_));
    ValueId q = b_.linear(x, wq), k = b_.linear(x, wk), v = b_.linear(x, wv);
    if (m_.qkv_bias) {
      q = b_.bias_add(q, b_.bias(name + "wq.bias", {heads(), head_dim()}));
      k = b_.bias_add(k, b_.bias(name + "wk.bias", {kv_heads(), head_dim()}));
      v = b_.bias_add(v, b_.bias(name + "wv.bias", {kv_heads(), head_dim()}));
    }
    q = b_.clip(q, m_.clip_qkv), k = b_.clip(k, m_.clip_qkv), v = b_.clip(v, m_.clip_qkv);
    if (m_.qk_norm) {
      q = head_norm(q, name + "q_norm.weight", m_.heads);
      k = head_norm(k, name + "k_norm.weight", m_.kv_heads);
    }
    const bool windowed = m_.windowed(block);
    if (m_.rotated(block)) {
      const RopeFrequencies& rope = windowed ? local_rope_ : rope_;
      q = b_.rope(q, rope.inv_freq, rope.scale);
      k = b_.rope(k, rope.inv_freq, rope.scale);
      if (m_.qk_unit_norm) q = b_.unit_norm(q, m_.norm_eps), k = b_.unit_norm(k, m_.norm_eps);
    } else {
      q = b_.position_scale(q, m_.position_scale, m_.position_floor);
    }
    const double scale =
        m_.attention_scale > 0 ? m_.attention_scale : 1.0 / std::sqrt(static_cast<double>(m_.head_dim));
    const ValueId o =
        b_.attention(q, k, v,
                     {.window = windowed ? m_.sliding_window : 0,
                      .scale = scale,
                      .soft_cap = m_.attention_soft_cap,
                      .chunk = m_.rotated(block) ? m_.attention_chunk : 0,
                      .sink = m_.attention_sinks ? b_.bias(name + "sink.weight", {heads()}) : ValueId()});
    const ValueId y =
        b_.linear(o, b_.weight(name + "wo.weight", {embed(), heads(), head_dim()}, residual_stddev(m_)));
    return m_.out_bias ? b_.bias_add(y, b_.bias(name + "wo.bias", {embed()})) : y;
  }

  Builder& b_;
  const config::Model& m_;
  RopeFrequencies rope_, local_rope_;  // of blocks without and with a window
};

}  // namespace

ValueId dense_feed_forward(Builder& b, const config::Model& m, ValueId x, int64_t ffn,
                           const std::string& name) {
  const DimSize inner{Dim::Ffn, ffn}, embed{Dim::Embed, m.embed};
  const ValueId gate = b.weight(name + "gate.weight", {inner, embed}, init_stddev(m));
  const ValueId up = b.weight(name + "up.weight", {inner, embed}, init_stddev(m));
  const ValueId gated = b.linear(x, gate), raised = b.linear(x, up);
  const auto act = m.activation == config::Activation::Gelu ? Builder::Gate::Gelu : Builder::Gate::Silu;
  return b.linear(b.swiglu(gated, raised, act),
                  b.weight(name + "down.weight", {embed, inner}, residual_stddev(m)));
}

void build_llama(Builder& builder, const config::Model& model) { Llama(builder, model).build(); }

}  // namespace quintet::models
