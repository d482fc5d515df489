// Shared by the tests of room layout: a small Llama written with the builder alone, and layouts for it.
#pragma once

#include <string>
#include <vector>

#include "graph/builder.h"
#include "layout/partition.h"

namespace quintet::layout::testing {

struct ModelOptions {
  int blocks = 2;
  int64_t heads = 4, kv_heads = 4, vocab = 37;
  bool tied = false;
  int64_t tokens = 48, seq_len = 8;
  graph::Mode mode = graph::Mode::Train;
  std::vector<graph::ParamGroup> groups = {};
};

inline graph::Graph small_llama(const ModelOptions& o) {
  using graph::Dim;
  graph::Builder b({.mode = o.mode, .tokens = o.tokens, .seq_len = o.seq_len, .groups = o.groups});
  const graph::DimSize vocab{Dim::Vocab, o.vocab}, embed{Dim::Embed, 16}, heads{Dim::Heads, o.heads},
      kv{Dim::KvHeads, o.kv_heads}, head{Dim::HeadDim, 6}, ffn{Dim::Ffn, 24};
  const graph::ValueId table = b.weight("embed.weight", {vocab, embed}, 0.02);
  graph::ValueId x = b.embedding(table, b.ids());
  for (int i = 0; i < o.blocks; ++i) {
    const std::string at = "blocks." + std::to_string(i) + ".";
    b.next_block();
    graph::ValueId y = b.rms_norm(x, b.norm_weight(at + "attn_norm.weight", embed), 1e-5);
    const auto q =
        b.rope(b.linear(y, b.weight(at + "wq.weight", {heads, head, embed}, 0.02)), {1.0, 0.1, 0.01});
    const auto k = b.rope(b.linear(y, b.weight(at + "wk.weight", {kv, head, embed}, 0.02)), {1.0, 0.1, 0.01});
    const auto v = b.linear(y, b.weight(at + "wv.weight", {kv, head, embed}, 0.02));
    x = b.add(x, b.linear(b.attention(q, k, v, {.scale = 0.5}),
                          b.weight(at + "wo.weight", {embed, heads, head}, 0.01)));
    y = b.rms_norm(x, b.norm_weight(at + "ffn_norm.weight", embed), 1e-5);
    const auto gate = b.linear(y, b.weight(at + "gate.weight", {ffn, embed}, 0.02));
    const auto up = b.linear(y, b.weight(at + "up.weight", {ffn, embed}, 0.02));
    x = b.add(x, b.linear(b.swiglu(gate, up), b.weight(at + "down.weight", {embed, ffn}, 0.01)));
  }
  b.next_block();
  x = b.rms_norm(x, b.norm_weight("final_norm.weight", embed), 1e-5);
  b.head(x, o.tied ? table : b.weight("head.weight", {vocab, embed}, 0.02));
  return b.finish();
}

struct Local {
  graph::Graph logical;
  Layout layout;
  LocalGraph local;
};

inline Local partitioned(const config::Parallel& parallel, const ModelOptions& model = {}) {
  graph::Graph logical = small_llama(model);
  Layout layout = make_layout(parallel, config::Model{.heads = model.heads, .kv_heads = model.kv_heads});
  LocalGraph local = partition(logical, layout);
  return {std::move(logical), std::move(layout), std::move(local)};
}

}  // namespace quintet::layout::testing
