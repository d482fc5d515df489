// Keys and weights that several families share, and the families that have files of their own.
#pragma once

#include <string>
#include <vector>

#include "config/hf/family.h"
#include "config/hf/keys.h"

namespace quintet::config::hf_parts {

using Keys = std::vector<HfKey>;
using Weights = std::vector<HfWeight>;

template <class List>
List joined(std::initializer_list<List> lists) {
  List all;
  for (const List& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// ---- keys; `absent` is what a missing key means

Keys decoder_sizes();  // layers, widths, vocabulary
Keys llama_sizes();    // and SiLU
HfKey tied(bool absent);
HfKey ffn();
HfKey kv_heads();
HfKey head_dim(int64_t absent = 0);
HfKey norm_eps(double absent);
HfKey window();  // one for all layers, or null
// Which layers have windows: layer_types, or else all but every n-th. `interval_key` may be empty; `interval`
// is what it is without a key (0: all layers, 1: none).
HfKey layer_windows(int64_t interval, const std::string& interval_key = "");
HfKey attention_bias(bool absent);  // on q, k, v and o
HfKey no_rope_layers();             // RoPE in all layers but every n-th: no_rope_layers, or else the interval
HfKey soft_cap(const std::string& name, double absent, double Model::*field);  // null: none
HfKey balance_loss(const char* name, double absent);
HfKey shared_experts();     // counted in widths of one expert
HfKey next_token_layers();  // HfConfig::predict_layers: a recipe decides whether they are trained

// ---- weights

Weights llama_ends();
Weights llama_projections();  // q, k, v with biases and norms, o
Weights llama_attention();    // with the norms of a pre-norm block
Weights llama_ffn();
Weights fused_experts();  // in one tensor, gate and up joined: how transformers 5 keeps them in memory
Weights split_experts();
Weights shared_weights(const std::string& name);
Weights next_token_weights(const Model& m);  // of multi-token prediction, as DeepSeek names them

// ---- families

Keys gemma2_keys();
Keys gemma3_keys();
Weights gemma_weights(const Model&);
Keys olmo2_keys();
Weights olmo2_weights(const Model&);
Keys smollm3_keys();
Keys phi3_keys();
Weights phi3_weights(const Model&);
Keys neox_keys();
Weights neox_weights(const Model&);
Keys bert_keys();
Weights bert_weights(const Model&);
Keys gpt_oss_keys();
Weights gpt_oss_weights(const Model&);
Keys dbrx_keys();
Weights dbrx_weights(const Model&);
Keys llama4_keys();
Weights llama4_weights(const Model&);
Keys glm4_moe_keys();
Weights glm4_moe_weights(const Model&);

}  // namespace quintet::config::hf_parts
