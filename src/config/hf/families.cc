// The families. Each is a table of config keys and a table of weights, in the words of keys.h and family.h.
#include <array>

#include "config/hf/parts.h"

namespace quintet::config {
namespace {

using namespace hf_parts;

// ---- keys

// Qwen: sliding_window counts only with use_sliding_window, for the layers from max_window_layers on.
HfKey qwen_window() {
  const HfKey listed = layer_windows(0);
  return {.names = {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                if (find_key(c, {"layer_types"}) != nullptr) return listed.read(c, m, problems);
                const HfJson* const use = find_key(c, {"use_sliding_window"});
                const HfJson* const size = find_key(c, {"sliding_window"});
                if (use == nullptr || *use != true || size == nullptr) return;
                int64_t from = 28;
                if (const HfJson* const found = find_key(c, {"max_window_layers"}))
                  read_value("max_window_layers", *found, from, problems);
                if (from >= m.layers) return;  // no layer has a window
                read_value("sliding_window", *size, m.sliding_window, problems);
                for (int64_t i = 0; i < from; ++i) m.full_attention_layers.push_back(i);
              },
          .write =
              [=](const Model& m, HfJson& c) {
                c["use_sliding_window"] = m.sliding_window > 0;
                if (m.sliding_window == 0) return;
                int64_t from = 0;
                while (from < m.layers && !m.windowed(from)) ++from;
                c["max_window_layers"] = from;
                listed.write(m, c);
              }};
}

// Which blocks have experts: all whose number is a multiple of decoder_sparse_step, but for mlp_only_layers.
HfKey sparse_blocks() {
  return {
      .names = {"decoder_sparse_step", "mlp_only_layers"},
      .read =
          [](const HfJson& c, Model& m, HfProblems& problems) {
            if (const HfJson* const step = find_key(c, {"decoder_sparse_step"}))
              read_value("decoder_sparse_step", *step, m.moe.every, problems);
            const HfJson* const dense = find_key(c, {"mlp_only_layers"});
            if (dense == nullptr) return;
            if (!dense->is_array())
              return problems.add("mlp_only_layers must be a list of layers, got {}", dense->dump());
            for (size_t i = 0; i < dense->size(); ++i)
              if ((*dense)[i] != i || m.moe.every != 1)
                return problems.add(
                    "mlp_only_layers = {} is not supported; only the first layers, with decoder_sparse_step "
                    "= 1",
                    dense->dump());
            m.moe.first_dense = static_cast<int64_t>(dense->size());
          },
      .write =
          [](const Model& m, HfJson& c) {
            c["decoder_sparse_step"] = m.moe.every;
            c["mlp_only_layers"] = HfJson::array();
            for (int64_t i = 0; i < m.moe.first_dense; ++i) c["mlp_only_layers"].push_back(i);
          }};
}

Keys llama_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {tied(false), ffn(), kv_heads(), head_dim(), norm_eps(1e-6), rope_key(1e4), attention_bias(false),
        only("mlp_bias", false), irrelevant({"rope_interleaved", "is_llama_config"})}});
}

Keys mistral_keys() {
  return joined<Keys>(
      {llama_sizes(), {tied(false), ffn(), kv_heads(), head_dim(), norm_eps(1e-6), rope_key(1e4), window()}});
}

Keys qwen2_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {always([](Model& m) { m.qkv_bias = true; }), tied(false), ffn(), kv_heads(), head_dim(),
        norm_eps(1e-6), rope_key(1e4), qwen_window(), irrelevant({"use_mrope"})}});
}

Keys qwen3_keys() {
  return joined<Keys>({llama_sizes(),
                       {always([](Model& m) { m.qk_norm = true; }), tied(false), ffn(), kv_heads(),
                        head_dim(128), norm_eps(1e-6), rope_key(1e4), attention_bias(false), qwen_window()}});
}

Keys mixtral_keys() {
  return joined<Keys>({llama_sizes(),
                       {tied(false), ffn(), value({"intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn),
                        kv_heads(), head_dim(), norm_eps(1e-5), rope_key(1e6), window(),
                        value({"num_local_experts", "num_experts"}, 8, &Model::moe, &Moe::experts),
                        value({"num_experts_per_tok"}, 2, &Model::moe, &Moe::top_k),
                        balance_loss("router_aux_loss_coef", 0.001), only("router_jitter_noise", 0.0)}});
}

Keys qwen_moe_keys() {
  return joined<Keys>({llama_sizes(),
                       {tied(false), ffn(), kv_heads(), norm_eps(1e-6), rope_key(1e4), sparse_blocks(),
                        value({"num_experts", "num_local_experts"}, kHfRequired, &Model::moe, &Moe::experts),
                        value({"num_experts_per_tok"}, kHfRequired, &Model::moe, &Moe::top_k),
                        value({"moe_intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn),
                        value({"norm_topk_prob"}, false, &Model::moe, &Moe::normalise),
                        balance_loss("router_aux_loss_coef", 0.001), qwen_window()}});
}

Keys qwen2_moe_keys() {
  Keys keys = joined<Keys>(
      {qwen_moe_keys(),
       {always([](Model& m) { m.moe.shared_gate = true; }), head_dim(),
        value({"qkv_bias"}, true, &Model::qkv_bias),
        value({"shared_expert_intermediate_size"}, kHfRequired, &Model::moe, &Moe::shared_ffn)}});
  return keys;
}

Keys qwen3_moe_keys() {
  return joined<Keys>(
      {qwen_moe_keys(), {always([](Model& m) { m.qk_norm = true; }), head_dim(), attention_bias(false)}});
}

HfKey sequence_balance() {
  return {.names = {"seq_aux"},
          .read =
              [](const HfJson& c, Model& m, HfProblems&) {
                const HfJson* const found = find_key(c, {"seq_aux"});
                if (m.moe.balance_loss > 0 && (found == nullptr || *found == true))
                  m.moe.balance_scope = BalanceScope::Sequence;
              },
          .write =
              [](const Model& m, HfJson& c) {
                c["seq_aux"] = m.moe.balance_scope == BalanceScope::Sequence || m.moe.balance_loss == 0;
              }};
}

Keys deepseek_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {tied(false), ffn(), value({"kv_lora_rank"}, kHfRequired, &Model::mla, &Mla::kv_rank),
        optional_size("q_lora_rank", &Model::mla, &Mla::q_rank),
        value({"qk_nope_head_dim"}, kHfRequired, &Model::mla, &Mla::nope_dim),
        value({"qk_rope_head_dim"}, kHfRequired, &Model::mla, &Mla::rope_dim),
        value({"v_head_dim"}, kHfRequired, &Model::mla, &Mla::v_dim), kv_heads(),
        // The norms of the latents have this eps whatever the key says.
        value({"rms_norm_eps"}, 1e-6, &Model::norm_eps), only("rms_norm_eps", 1e-6), rope_key(1e4),
        only("attention_bias", false), only("mlp_bias", false),
        value({"n_routed_experts", "num_experts", "num_local_experts"}, kHfRequired, &Model::moe,
              &Moe::experts),
        value({"num_experts_per_tok"}, kHfRequired, &Model::moe, &Moe::top_k),
        value({"moe_intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn), shared_experts(),
        value({"first_k_dense_replace"}, 0, &Model::moe, &Moe::first_dense), only("moe_layer_freq", 1),
        value({"routed_scaling_factor"}, 1.0, &Model::moe, &Moe::scale), balance_loss("aux_loss_alpha", 0.0),
        sequence_balance(), irrelevant({"head_dim", "qk_head_dim", "ep_size"})}});
}

// n_group and topk_group count only with group_limited_greedy.
HfKey deepseek_v2_groups() {
  return {.names = {"topk_method", "n_group", "topk_group"},
          .read =
              [](const HfJson& c, Model& m, HfProblems& problems) {
                const HfJson* const method = find_key(c, {"topk_method"});
                if (method == nullptr || *method == "greedy") return;
                if (*method != "group_limited_greedy")
                  return problems.add(
                      "topk_method = {} is not supported; only \"greedy\" and \"group_limited_greedy\"",
                      method->dump());
                if (const HfJson* const groups = find_key(c, {"n_group"}))
                  read_value("n_group", *groups, m.moe.groups, problems);
                if (const HfJson* const kept = find_key(c, {"topk_group"}))
                  read_value("topk_group", *kept, m.moe.groups_kept, problems);
              },
          .write =
              [](const Model& m, HfJson& c) {
                c["topk_method"] = m.moe.groups > 1 ? "group_limited_greedy" : "greedy";
                c["n_group"] = m.moe.groups, c["topk_group"] = m.moe.groups_kept;
              }};
}

Keys deepseek_v2_keys() {
  return joined<Keys>({deepseek_keys(),
                       {always([](Model& m) { m.moe.normalise = false; }), only("norm_topk_prob", false),
                        only("scoring_func", "softmax"), deepseek_v2_groups()}});
}

Keys deepseek_v3_keys() {
  return joined<Keys>(
      {deepseek_keys(),
       {always([](Model& m) {
          m.moe.score = RouterScore::Sigmoid;
          m.moe.bias_rate = 1e-3;  // of the selection bias, which every V3 file has
        }),
        only("topk_method", "noaux_tc"), only("scoring_func", "sigmoid"), only("rope_interleave", true),
        value({"norm_topk_prob"}, true, &Model::moe, &Moe::normalise),
        value({"n_group"}, 8, &Model::moe, &Moe::groups),
        value({"topk_group"}, 4, &Model::moe, &Moe::groups_kept), next_token_layers()}});
}

// One rate for the three places.
HfKey gpt2_dropout() {
  const std::vector<std::string> names = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  return {.names = names,
          .read =
              [names](const HfJson& c, Model& m, HfProblems& problems) {
                double rates[3] = {0.1, 0.1, 0.1};
                for (size_t i = 0; i < 3; ++i)
                  if (const HfJson* const found = find_key(c, {names[i]}))
                    read_value(names[i], *found, rates[i], problems);
                if (rates[0] != rates[1] || rates[1] != rates[2])
                  problems.add("resid_pdrop {}, embd_pdrop {} and attn_pdrop {} must be equal", rates[0],
                               rates[1], rates[2]);
                m.dropout = rates[0];
              },
          .write =
              [names](const Model& m, HfJson& c) {
                for (const std::string& name : names) c[name] = m.dropout;
              }};
}

Keys gpt2_keys() {
  return {
      always([](Model& m) { m.family = Family::Gpt2; }),
      value({"n_layer", "num_hidden_layers"}, kHfRequired, &Model::layers),
      value({"n_embd", "hidden_size"}, kHfRequired, &Model::embed),
      value({"n_head", "num_attention_heads"}, kHfRequired, &Model::heads),
      value({"n_positions", "max_position_embeddings"}, kHfRequired, &Model::max_positions),
      value({"vocab_size"}, kHfRequired, &Model::vocab),
      value({"n_inner"}, 0, &Model::ffn),
      value({"layer_norm_epsilon"}, 1e-5, &Model::norm_eps),
      tied(true),
      gpt2_dropout(),
      only("activation_function", "gelu_new"),
      only("scale_attn_weights", true),
      only("scale_attn_by_inverse_layer_idx", false),
      only("reorder_and_upcast_attn", false),
      irrelevant({"n_ctx", "n_special", "predict_special_tokens", "summary_activation",
                  "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"})};
}

// ---- weights

Weights llama_weights(const Model&) {
  return joined<Weights>({llama_ends(), llama_attention(), llama_ffn()});
}

Weights mixtral_weights(const Model&) {
  const std::string moe = "layers.{i}.block_sparse_moe.";
  return joined<Weights>({llama_ends(),
                          llama_attention(),
                          {{"blocks.{i}.ffn.router.weight", moe + "gate.weight", "0 1"},
                           {"blocks.{i}.ffn.router.weight", "layers.{i}.mlp.gate.weight", "0 1"},
                           {"blocks.{i}.ffn.experts.gate.weight", moe + "experts.{e}.w1.weight", "1 2"},
                           {"blocks.{i}.ffn.experts.up.weight", moe + "experts.{e}.w3.weight", "1 2"},
                           {"blocks.{i}.ffn.experts.down.weight", moe + "experts.{e}.w2.weight", "1 2"}},
                          fused_experts()});
}

Weights qwen_moe_weights(const Model&) {
  return joined<Weights>(
      {llama_ends(),
       llama_attention(),
       llama_ffn(),
       split_experts(),
       fused_experts(),
       shared_weights("shared_expert"),
       {{"blocks.{i}.ffn.shared_gate.weight", "layers.{i}.mlp.shared_expert_gate.weight", "0 1"}}});
}

// The rotary parts are stored as interleaved pairs.
Weights deepseek_weights(const Model& m) {
  const std::string attn = "layers.{i}.self_attn.",
                    q = m.mla.q_rank > 0 ? "q_b_proj.weight" : "q_proj.weight";
  return joined<Weights>(
      {llama_ends(),
       {{"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"},
        {"blocks.{i}.attn.wq_down.weight", attn + "q_a_proj.weight", "0 1"},
        {"blocks.{i}.attn.q_norm.weight", attn + "q_a_layernorm.weight", "0"},
        {"blocks.{i}.attn.wq_nope.weight", attn + q, "0+1 2"},
        {"blocks.{i}.attn.wq_rope.weight", attn + q, "0+1~ 2"},
        {"blocks.{i}.attn.wkv_down.weight", attn + "kv_a_proj_with_mqa.weight", "+0 1"},
        {"blocks.{i}.attn.wk_rope.weight", attn + "kv_a_proj_with_mqa.weight", "+01~ 2"},
        {"blocks.{i}.attn.kv_norm.weight", attn + "kv_a_layernorm.weight", "0"},
        {"blocks.{i}.attn.wk_nope.weight", attn + "kv_b_proj.weight", "0+1 2"},
        {"blocks.{i}.attn.wv.weight", attn + "kv_b_proj.weight", "0+1 2"},
        {"blocks.{i}.attn.wo.weight", attn + "o_proj.weight", "0 12"},
        {"blocks.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
        {"blocks.{i}.ffn.router.bias", "layers.{i}.mlp.gate.e_score_correction_bias", "0"}},
       llama_ffn(),
       split_experts(),
       fused_experts(),
       shared_weights("shared_experts"),
       next_token_weights(m)});
}

// Conv1D stores [in, out].
Weights gpt2_weights(const Model&) {
  return {{"embed.weight", "wte.weight", "0 1"},
          {"positions.weight", "wpe.weight", "0 1"},
          {"final_norm.weight", "ln_f.weight", "0"},
          {"final_norm.bias", "ln_f.bias", "0"},
          {"head.weight", "/lm_head.weight", "0 1"},
          {"blocks.{i}.attn_norm.weight", "h.{i}.ln_1.weight", "0"},
          {"blocks.{i}.attn_norm.bias", "h.{i}.ln_1.bias", "0"},
          {"blocks.{i}.attn.wq.weight", "h.{i}.attn.c_attn.weight", "2 +01"},
          {"blocks.{i}.attn.wk.weight", "h.{i}.attn.c_attn.weight", "2 +01"},
          {"blocks.{i}.attn.wv.weight", "h.{i}.attn.c_attn.weight", "2 +01"},
          {"blocks.{i}.attn.wq.bias", "h.{i}.attn.c_attn.bias", "+01"},
          {"blocks.{i}.attn.wk.bias", "h.{i}.attn.c_attn.bias", "+01"},
          {"blocks.{i}.attn.wv.bias", "h.{i}.attn.c_attn.bias", "+01"},
          {"blocks.{i}.attn.wo.weight", "h.{i}.attn.c_proj.weight", "12 0"},
          {"blocks.{i}.attn.wo.bias", "h.{i}.attn.c_proj.bias", "0"},
          {"blocks.{i}.ffn_norm.weight", "h.{i}.ln_2.weight", "0"},
          {"blocks.{i}.ffn_norm.bias", "h.{i}.ln_2.bias", "0"},
          {"blocks.{i}.ffn.up.weight", "h.{i}.mlp.c_fc.weight", "1 0"},
          {"blocks.{i}.ffn.up.bias", "h.{i}.mlp.c_fc.bias", "0"},
          {"blocks.{i}.ffn.down.weight", "h.{i}.mlp.c_proj.weight", "1 0"},
          {"blocks.{i}.ffn.down.bias", "h.{i}.mlp.c_proj.bias", "0"}};
}

const auto& hf_table() {
  static const std::vector<std::string_view> kNoRope = {"*rotary_emb.inv_freq"};
  static const std::vector<std::string_view> kOtherParts = {
      "vision_tower.*",       "vision_model.*",       "multi_modal_projector.*",
      "model.vision_tower.*", "model.vision_model.*", "model.multi_modal_projector.*"};
  static const std::array kFamilies = {
      HfFamily{"llama", {"LlamaForCausalLM"}, "model.", llama_keys, llama_weights, kNoRope},
      HfFamily{"mistral", {"MistralForCausalLM"}, "model.", mistral_keys, llama_weights, kNoRope},
      HfFamily{"qwen2", {"Qwen2ForCausalLM"}, "model.", qwen2_keys, llama_weights, kNoRope},
      HfFamily{"qwen3", {"Qwen3ForCausalLM"}, "model.", qwen3_keys, llama_weights, kNoRope},
      HfFamily{"gemma2", {"Gemma2ForCausalLM"}, "model.", gemma2_keys, gemma_weights, kNoRope},
      HfFamily{"gemma3_text", {"Gemma3ForCausalLM"}, "model.", gemma3_keys, gemma_weights, kNoRope},
      HfFamily{"olmo2", {"Olmo2ForCausalLM"}, "model.", olmo2_keys, olmo2_weights, kNoRope},
      HfFamily{"smollm3", {"SmolLM3ForCausalLM"}, "model.", smollm3_keys, llama_weights, kNoRope},
      HfFamily{"phi3", {"Phi3ForCausalLM"}, "model.", phi3_keys, phi3_weights, kNoRope},
      HfFamily{"gemma3",
               {"Gemma3ForConditionalGeneration"},
               "",
               gemma3_keys,
               gemma_weights,
               kNoRope,
               "gemma3_text",
               kOtherParts},
      HfFamily{"mistral3",
               {"Mistral3ForConditionalGeneration"},
               "",
               mistral_keys,
               llama_weights,
               kNoRope,
               "mistral",
               kOtherParts},
      HfFamily{"llama4",
               {"Llama4ForConditionalGeneration"},
               "",
               llama4_keys,
               llama4_weights,
               kNoRope,
               "llama4_text",
               kOtherParts},
      HfFamily{"mixtral", {"MixtralForCausalLM"}, "model.", mixtral_keys, mixtral_weights, kNoRope},
      HfFamily{"qwen2_moe", {"Qwen2MoeForCausalLM"}, "model.", qwen2_moe_keys, qwen_moe_weights, kNoRope},
      HfFamily{"qwen3_moe", {"Qwen3MoeForCausalLM"}, "model.", qwen3_moe_keys, qwen_moe_weights, kNoRope},
      HfFamily{
          "deepseek_v2", {"DeepseekV2ForCausalLM"}, "model.", deepseek_v2_keys, deepseek_weights, kNoRope},
      HfFamily{
          "deepseek_v3", {"DeepseekV3ForCausalLM"}, "model.", deepseek_v3_keys, deepseek_weights, kNoRope},
      HfFamily{"gpt_oss", {"GptOssForCausalLM"}, "model.", gpt_oss_keys, gpt_oss_weights, kNoRope},
      HfFamily{"dbrx", {"DbrxForCausalLM"}, "transformer.", dbrx_keys, dbrx_weights, kNoRope},
      HfFamily{"llama4_text", {"Llama4ForCausalLM"}, "model.", llama4_keys, llama4_weights, kNoRope},
      HfFamily{"glm4_moe", {"Glm4MoeForCausalLM"}, "model.", glm4_moe_keys, glm4_moe_weights, kNoRope},
      HfFamily{"gpt_neox",
               {"GPTNeoXForCausalLM"},
               "gpt_neox.",
               neox_keys,
               neox_weights,
               {"*.attention.bias", "*.attention.masked_bias", "*rotary_emb.inv_freq"}},
      HfFamily{
          "bert",
          {"BertForMaskedLM", "BertForPreTraining"},
          "bert.",
          bert_keys,
          bert_weights,
          {"*position_ids", "*pooler.dense.*", "cls.seq_relationship.*", "cls.predictions.decoder.bias"}},
      HfFamily{"gpt2",
               {"GPT2LMHeadModel"},
               "transformer.",
               gpt2_keys,
               gpt2_weights,
               {"*h.?.attn.bias", "*h.??.attn.bias", "*h.*.attn.masked_bias"}},
  };
  return kFamilies;
}

}  // namespace

std::span<const HfFamily> hf_families() { return hf_table(); }

const HfFamily* find_hf_family(std::string_view type) {
  for (const HfFamily& family : hf_table())
    if (family.type == type) return &family;
  return nullptr;
}

}  // namespace quintet::config
