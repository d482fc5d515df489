// BERT, an encoder: learned positions and token types, a LayerNorm of the embeddings and after every residual
// sum, attention to both sides, exact GELU, biases everywhere; dropout where GPT-2 has it. The head predicts
// masked tokens: a linear layer with GELU and LayerNorm, then the embedding table (or a matrix of its own)
// and a bias per token.
#include <fmt/format.h>

#include "base/error.h"
#include "models/families.h"

namespace quintet::models {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

void build_bert(Builder& b, const config::Model& m) {
  const int64_t seq_len = b.options().seq_len;
  if (m.max_positions < seq_len)
    base::fail_user(
        "data.seq_len = {} exceeds model.max_positions = {}; lower data.seq_len or raise model.max_positions",
        seq_len, m.max_positions);
  const DimSize vocab{Dim::Vocab, m.vocab}, embed{Dim::Embed, m.embed};
  const auto form = m.gelu_tanh ? Builder::GeluForm::Tanh : Builder::GeluForm::Erf;
  const auto norm = [&](ValueId x, const std::string& name) { return layer_norm(b, m, x, name); };

  const ValueId table = b.weight("embed.weight", {vocab, embed}, init_stddev(m));
  const ValueId positions =
      b.weight("positions.weight", {{Dim::Positions, m.max_positions}, embed}, init_stddev(m));
  const ValueId types = b.weight("token_types.weight", {{Dim::Types, m.token_types}, embed}, init_stddev(m));
  ValueId x = b.add(b.embedding(table, b.ids()), b.embedding(positions, b.positions()));
  x = norm(b.add(x, b.embedding(types, b.token_types())), "embed_norm.");
  x = b.dropout(x, m.dropout);
  for (int64_t i = 0; i < m.layers; ++i) {
    b.next_block();
    const std::string name = fmt::format("blocks.{}.", i);
    x = b.add(x, biased_attention(b, m, x, name + "attn.", {.both_sides = true}));
    x = norm(x, name + "attn_norm.");
    x = norm(b.add(x, biased_feed_forward(b, m, x, name + "ffn.", form)), name + "ffn_norm.");
  }
  b.next_block();
  const ValueId transform = b.weight("head_transform.weight", {embed, embed}, init_stddev(m));
  x = b.gelu(b.linear(x, transform, b.bias("head_transform.bias", {embed})), form);
  x = norm(x, "head_norm.");
  const ValueId head = m.tied ? table : b.weight("head.weight", {vocab, embed}, init_stddev(m));
  b.head(x, head, 0, b.bias("head.bias", {vocab}));
}

}  // namespace quintet::models
