// Models as graphs. Each family is one file that calls graph::Builder, without any notion of parallelism.
//
// Parameter names are a contract with checkpoints, patterns of optimizer.groups and users:
//   embed.weight [vocab, embed]; positions.weight [positions, embed] (gpt2)
//   blocks.{i}.attn_norm.weight, blocks.{i}.ffn_norm.weight, final_norm.weight [embed]
//   blocks.{i}.attn_post_norm.weight, blocks.{i}.ffn_post_norm.weight [embed] (with norms after the parts)
//   blocks.{i}.attn.wq.weight [heads, head_dim, embed], wk, wv [kv_heads, head_dim, embed],
//   blocks.{i}.attn.wo.weight [embed, heads, head_dim]; sink.weight [heads] (with attention_sinks)
//   blocks.{i}.attn.q_norm.weight, k_norm.weight [head_dim], or of all heads (with qk_norm)
//   blocks.{i}.ffn.gate.weight (llama), up.weight [ffn, embed], down.weight [embed, ffn]
//   head.weight [vocab, embed] (absent when tied)
// In a block with experts, instead of ffn.gate, up and down:
//   blocks.{i}.ffn.router.weight [experts, embed]; the state router.bias [experts] (with bias_rate)
//   with moe.bias: blocks.{i}.ffn.router.offset [experts], experts.gate.bias, experts.up.bias [experts, ffn],
//   blocks.{i}.ffn.experts.down.bias [embed, experts]
//   blocks.{i}.ffn.experts.gate.weight, up.weight [experts, ffn, embed], down.weight [experts, embed, ffn]
//   blocks.{i}.ffn.shared.gate.weight, up.weight, down.weight, shared_gate.weight [1, embed]
// With latent attention, instead of wq, wk and wv (in = the latent, or embed without q_rank):
//   blocks.{i}.attn.wq_down.weight [q_rank, embed], q_norm.weight [q_rank]
//   blocks.{i}.attn.wq_nope.weight, wq_rope.weight [heads, nope or rope dim, in]
//   blocks.{i}.attn.wkv_down.weight [kv_rank, embed], kv_norm.weight [kv_rank]
//   blocks.{i}.attn.wk_nope.weight, wv.weight [heads, nope or v dim, kv_rank]
//   blocks.{i}.attn.wk_rope.weight [1, rope, embed]
// With multi-token prediction, a block blocks.{layers}, which also has
//   blocks.{i}.embed_norm.weight, hidden_norm.weight, final_norm.weight [embed]
//   blocks.{i}.join_embed.weight, join_hidden.weight [embed, embed]
// Biases are named after their weights: wq, wk, wv with qkv_bias, all of them in gpt2, neox and bert.
// bert: token_types.weight [types, embed]; embed_norm.weight [embed]; attn_norm and ffn_norm follow the
// residual sums; instead of final_norm head_transform.weight [embed, embed], head_norm.weight [embed];
// head.bias [vocab]
//
// Block labels: 0 the embeddings, 1 .. layers the blocks, layers + 1 the final norm and the head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "graph/builder.h"

namespace quintet::models {

// The graph of one micro-batch, including the backward pass in mode Train. `model` must be resolved; a
// non-positive size, or a sequence longer than a learned position table, is a UserError.
graph::Graph build(const config::Model& model, const graph::BuildOptions& options);

// BuildOptions::groups of a recipe.
std::vector<graph::ParamGroup> param_groups(const config::Optimizer& optimizer);

int64_t parameter_count(const graph::Graph& graph);  // a tied table counts once
// Parameters used by one token: of the experts only its top_k. A custom model's experts count as all used.
int64_t active_parameter_count(const graph::Graph& graph, const config::Model& model);
int64_t trainable_parameter_count(const graph::Graph& graph);  // without frozen parameters

}  // namespace quintet::models
