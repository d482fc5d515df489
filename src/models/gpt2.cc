// GPT-2: learned positions, pre-norm LayerNorm with bias, full attention, tanh GELU, biases everywhere, the
// head tied to the embedding; dropout on the embeddings, the attention weights and both residual branches.
// GPT-NeoX (Pythia): the same without dropout, with rotary positions and exact GELU; attention and
// feed-forward network may read the same input.
#include <fmt/format.h>

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
  ValueId norm(ValueId x, const std::string& name) { return layer_norm(b_, m_, x, name); }
  ValueId attention(ValueId x, const std::string& name) {
    return biased_attention(b_, m_, x, name, {.rope = rotary() ? &rope_ : nullptr});
  }
  ValueId feed_forward(ValueId x, const std::string& name) {
    return biased_feed_forward(b_, m_, x, name,
                               rotary() && !m_.gelu_tanh ? Builder::GeluForm::Erf : Builder::GeluForm::Tanh);
  }

  Builder& b_;
  const config::Model& m_;
  RopeFrequencies rope_;
};

}  // namespace

void build_gpt2(Builder& builder, const config::Model& model) { Gpt2(builder, model).build(); }

}  // namespace quintet::models
