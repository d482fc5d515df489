// GLM-4 with experts (GLM-4.5, 4.6).
#include "config/hf/parts.h"

namespace quintet::config::hf_parts {

Keys glm4_moe_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {always([](Model& m) {
          m.moe.score = RouterScore::Sigmoid;
          m.moe.bias_rate = 1e-3;  // of the selection bias, which every file has
        }),
        tied(false), ffn(), kv_heads(), head_dim(), norm_eps(1e-5), rope_key(partial_rope(0.5)),
        value({"attention_bias"}, false, &Model::qkv_bias), value({"use_qk_norm"}, false, &Model::qk_norm),
        value({"n_routed_experts", "num_experts", "num_local_experts"}, kHfRequired, &Model::moe,
              &Moe::experts),
        value({"num_experts_per_tok"}, kHfRequired, &Model::moe, &Moe::top_k),
        value({"moe_intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn), shared_experts(),
        value({"first_k_dense_replace"}, 1, &Model::moe, &Moe::first_dense),
        value({"routed_scaling_factor"}, 1.0, &Model::moe, &Moe::scale),
        value({"norm_topk_prob"}, true, &Model::moe, &Moe::normalise),
        value({"n_group"}, 1, &Model::moe, &Moe::groups),
        value({"topk_group"}, 1, &Model::moe, &Moe::groups_kept),
        irrelevant({"num_nextn_predict_layers", "num_mtp_layers"})}});
}

Weights glm4_moe_weights(const Model&) {
  return joined<Weights>(
      {llama_ends(),
       llama_attention(),
       {{"blocks.{i}.ffn.router.bias", "layers.{i}.mlp.gate.e_score_correction_bias", "0"}},
       llama_ffn(),
       split_experts(),
       fused_experts(),
       shared_weights("shared_experts")});
}

}  // namespace quintet::config::hf_parts
