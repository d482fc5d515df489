// GPT-2: learned positions, pre-norm LayerNorm with bias, full attention, tanh GELU, biases everywhere, the
// head tied to the embedding; dropout on the embeddings, the attention weights and both residual branches.
// GPT-NeoX (Pythia): the same without dropout, with rotary positions and exact GELU; attention and
// feed-forward network may read the same input.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "models/families.h"
#include "models/rope_frequencies.h"

namespace quintet::models {
namespace {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

class Gpt2 {
 public:
  Gpt2(Builder& builder, const config::Model& model) : b_(builder), m_(model) {
    if (rotary())
      rope_ = rope_frequencies(model.rope_theta, model.rotary_dim > 0 ? model.rotary_dim : model.head_dim,
                               model.rope_scaling);
  }

  void build() {
    const int64_t seq_len = b_.options().seq_len;
    if (!rotary() && m_.max_positions < seq_len)
      base::fail_user(
          "data.seq_len = {} exceeds model.max_positions = {}; lower data.seq_len or raise "
          "model.max_positions",
          seq_len, m_.max_positions);
    if (m_.kv_heads != m_.heads)
      base::fail_user(
          "this family requires model.kv_heads = model.heads: got model.kv_heads = {} and model.heads = {}",
          m_.kv_heads, m_.heads);
    const ValueId table = b_.weight("embed.weight", {vocab(), embed()}, init_stddev(m_));
    ValueId x = rotary() ? b_.embedding(table, b_.ids()) : with_positions(table);
    x = b_.dropout(x, m_.dropout);
    for (int64_t i = 0; i < m_.layers; ++i) {
      b_.next_block();
      const std::string name = fmt::format("blocks.{}.", i);
      const ValueId before = x;
      x = b_.add(x, attention(norm(x, name + "attn_norm."), name + "attn."));
      x = b_.add(x, feed_forward(norm(m_.parallel_blocks ? before : x, name + "ffn_norm."), name + "ffn."));
    }
    b_.next_block();
    x = norm(x, "final_norm.");
    b_.head(x, m_.tied ? table : b_.weight("head.weight", {vocab(), embed()}, init_stddev(m_)));
  }

 private:
  bool rotary() const { return m_.family == config::Family::Neox; }

  ValueId with_positions(ValueId table) {
    const ValueId positions =
        b_.weight("positions.weight", {{Dim::Positions, m_.max_positions}, embed()}, init_stddev(m_));
    return b_.add(b_.embedding(table, b_.ids()), b_.embedding(positions, b_.positions()));
  }

  DimSize vocab() const { return {Dim::Vocab, m_.vocab}; }
  DimSize embed() const { return {Dim::Embed, m_.embed}; }
  DimSize ffn() const { return {Dim::Ffn, m_.ffn}; }
  DimSize heads() const { return {Dim::Heads, m_.heads}; }
  DimSize kv_heads() const { return {Dim::KvHeads, m_.kv_heads}; }
  DimSize head_dim() const { return {Dim::HeadDim, m_.head_dim}; }

  ValueId norm(ValueId x, const std::string& name) {
    const ValueId weight = b_.norm_weight(name + "weight", embed());
    return b_.layer_norm(x, weight, b_.bias(name + "bias", {embed()}), m_.norm_eps);
  }

  ValueId attention(ValueId x, const std::string& name) {
    // Q, K and V are declared consecutively, so that a layout can store them contiguously.
    const ValueId wq = b_.weight(name + "wq.weight", {heads(), head_dim(), embed()}, init_stddev(m_));
    const ValueId wk = b_.weight(name + "wk.weight", {kv_heads(), head_dim(), embed()}, init_stddev(m_));
    const ValueId wv = b_.weight(name + "wv.weight", {kv_heads(), head_dim(), embed()}, init_stddev(m_));
    ValueId q = b_.linear(x, wq, b_.bias(name + "wq.bias", {heads(), head_dim()}));
    ValueId k = b_.linear(x, wk, b_.bias(name + "wk.bias", {kv_heads(), head_dim()}));
    const ValueId v = b_.linear(x, wv, b_.bias(name + "wv.bias", {kv_heads(), head_dim()}));
    if (rotary()) q = b_.rope(q, rope_.inv_freq, rope_.scale), k = b_.rope(k, rope_.inv_freq, rope_.scale);
    const double scale = 1.0 / std::sqrt(static_cast<double>(m_.head_dim));
    const ValueId o = b_.attention(q, k, v, {.scale = scale, .dropout = m_.dropout});
    const ValueId wo = b_.weight(name + "wo.weight", {embed(), heads(), head_dim()}, residual_stddev(m_));
    return b_.dropout(b_.linear(o, wo, b_.bias(name + "wo.bias", {embed()})), m_.dropout);
  }

  ValueId feed_forward(ValueId x, const std::string& name) {
    const ValueId up = b_.weight(name + "up.weight", {ffn(), embed()}, init_stddev(m_));
    const ValueId hidden =
        b_.gelu(b_.linear(x, up, b_.bias(name + "up.bias", {ffn()})),
                rotary() && !m_.gelu_tanh ? Builder::GeluForm::Erf : Builder::GeluForm::Tanh);
    const ValueId down = b_.weight(name + "down.weight", {embed(), ffn()}, residual_stddev(m_));
    return b_.dropout(b_.linear(hidden, down, b_.bias(name + "down.bias", {embed()})), m_.dropout);
  }

  Builder& b_;
  const config::Model& m_;
  RopeFrequencies rope_;
};

}  // namespace

void build_gpt2(Builder& builder, const config::Model& model) { Gpt2(builder, model).build(); }

}  // namespace quintet::models
