// GPT-OSS, DBRX, Llama 4 (text), GLM-4 with experts (GLM-4.5, 4.6).
#include <set>

#include "config/hf/parts.h"

namespace quintet::config::hf_parts {
namespace {

// Experts in every block, whose width intermediate_size is.
Keys only_experts() {
  return {ffn(), value({"intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn),
          value({"num_local_experts"}, kHfRequired, &Model::moe, &Moe::experts)};
}

// The keys of an object in the config: those of `known`, which are read from it, and those that transformers
// gives every configuration.
HfKey nested(const std::string& name, const Keys& known) {
  return {.names = {name},
          .read =
              [=](const HfJson& config, Model& m, HfProblems& problems) {
                static const HfJson kNone = HfJson::object();
                const HfJson* const found = find_key(config, {name});
                if (found != nullptr && !found->is_object())
                  return problems.add("{} must be an object, got {}", name, found->dump());
                const HfJson& object = found != nullptr && found->is_object() ? *found : kNone;
                std::set<std::string> names = {"model_type", "architectures", "is_encoder_decoder",
                                               "chunk_size_feed_forward"};
                for (const std::string& key : hf_irrelevant_keys()) names.insert(key);
                for (const HfKey& key : known) {
                  key.read(object, m, problems);
                  names.insert(key.names.begin(), key.names.end());
                }
                for (const auto& [key, value] : object.items())
                  if (!names.contains(key))
                    problems.add("{}: {} = {} is not a key that is known", name, key, value.dump());
              },
          .write =
              [=](const Model& m, HfJson& config) {
                HfJson object = HfJson::object();
                for (const HfKey& key : known) key.write(m, object);
                config[name] = object;
              }};
}

// Of attn_config: read by dbrx_rope().
HfKey dbrx_theta() {
  HfKey key = irrelevant({"rope_theta"});
  key.write = [](const Model& m, HfJson& config) { config["rope_theta"] = m.rope_theta; };
  return key;
}

// Theta is where transformers 4 has it, in attn_config, or in rope_parameters.
HfKey dbrx_rope() {
  HfKey key = rope_key(1e4);
  key.read = [read = key.read](const HfJson& config, Model& m, HfProblems& problems) {
    HfJson with = config;
    const HfJson* const attention = find_key(config, {"attn_config"});
    if (attention != nullptr && find_key(config, {"rope_parameters", "rope_theta"}) == nullptr)
      if (const HfJson* const theta = find_key(*attention, {"rope_theta"})) with["rope_theta"] = *theta;
    read(with, m, problems);
  };
  return key;
}

// Layers with RoPE attend within chunks, the others everywhere.
HfKey chunked_layers() {
  const auto listed = [](const Model& m) {
    HfJson list = HfJson::array();
    for (int64_t i = 0; i < m.layers; ++i)
      list.push_back(m.attention_chunk > 0 && m.rotated(i) ? "chunked_attention" : "full_attention");
    return list;
  };
  return {.names = {"attention_chunk_size", "layer_types"},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                m.attention_chunk = c.contains("attention_chunk_size") ? 0 : 8192;
                if (const HfJson* const chunk = find_key(c, {"attention_chunk_size"}))
                  read_value("attention_chunk_size", *chunk, m.attention_chunk, problems);
                const HfJson* const types = find_key(c, {"layer_types"});
                if (types != nullptr && *types != listed(m))
                  problems.add("layer_types = {} is not supported; only {}", types->dump(), listed(m).dump());
              },
          .write =
              [=](const Model& m, HfJson& c) {
                c["attention_chunk_size"] = m.attention_chunk > 0 ? HfJson(m.attention_chunk) : HfJson();
                c["layer_types"] = listed(m);
              }};
}

// In layers without RoPE.
HfKey temperature() {
  return {.names = {"attn_temperature_tuning", "attn_scale", "floor_scale"},
          .read =
              [](const HfJson& c, Model& m, HfProblems& problems) {
                bool tuned = true;
                double scale = 0.1;
                int64_t floor = 8192;
                if (const HfJson* const found = find_key(c, {"attn_temperature_tuning"})) {
                  if (found->is_number_integer())
                    tuned = *found != 0;  // published files have a number
                  else
                    read_value("attn_temperature_tuning", *found, tuned, problems);
                }
                if (const HfJson* const found = find_key(c, {"attn_scale"}))
                  read_value("attn_scale", *found, scale, problems);
                if (const HfJson* const found = find_key(c, {"floor_scale"}))
                  read_value("floor_scale", *found, floor, problems);
                if (tuned && m.no_rope_every > 0) m.position_scale = scale, m.position_floor = floor;
              },
          .write =
              [](const Model& m, HfJson& c) {
                c["attn_temperature_tuning"] = m.position_scale > 0;
                if (m.position_scale > 0)
                  c["attn_scale"] = m.position_scale, c["floor_scale"] = m.position_floor;
              }};
}

HfKey expert_interval() {
  HfKey key = value({"interleave_moe_layer_step"}, 1, &Model::moe, &Moe::every);
  key.read = [read = key.read](const HfJson& c, Model& m, HfProblems& problems) {
    read(c, m, problems);
    if (m.moe.every > 0) return;
    problems.add("interleave_moe_layer_step must be at least 1, got {}", m.moe.every);
    m.moe.every = 1;
  };
  return key;
}

HfKey moe_layers() {
  const auto listed = [](const Model& m) {
    HfJson list = HfJson::array();
    for (int64_t i = 0; i < m.layers; ++i)
      if (m.moe.in_block(i)) list.push_back(i);
    return list;
  };
  return {.names = {"moe_layers"},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                const HfJson* const list = find_key(c, {"moe_layers"});
                if (list != nullptr && *list != listed(m))
                  problems.add("moe_layers = {} is not supported; only every n-th: {}", list->dump(),
                               listed(m).dump());
              },
          .write = [=](const Model& m, HfJson& c) { c["moe_layers"] = listed(m); }};
}

}  // namespace

// router_aux_loss_coef counts only where a training script asks transformers for it.
Keys gpt_oss_keys() {
  return joined<Keys>(
      {llama_sizes(),
       only_experts(),
       {always([](Model& m) {
          m.attention_sinks = true, m.moe.bias = true;
          m.moe.order = RouterOrder::TopKFirst, m.activation = Activation::Clamped;
        }),
        tied(false), kv_heads(), head_dim(64), norm_eps(1e-5), layer_windows(2), rope_key(1.5e5),
        attention_bias(true),
        value({"num_experts_per_tok", "experts_per_token"}, kHfRequired, &Model::moe, &Moe::top_k),
        value({"swiglu_alpha"}, 1.702, &Model::activation_alpha),
        value({"swiglu_limit"}, 7.0, &Model::activation_limit),
        irrelevant({"router_aux_loss_coef", "initial_context_length"})}});
}

// Gate and up alternate, and matrices are stored as [in, out].
Weights gpt_oss_weights(const Model&) {
  const std::string experts = "layers.{i}.mlp.experts.", ours = "blocks.{i}.ffn.experts.";
  return joined<Weights>({llama_ends(),
                          llama_attention(),
                          {{"blocks.{i}.attn.sink.weight", "layers.{i}.self_attn.sinks", "0"},
                           {"blocks.{i}.ffn.router.weight", "layers.{i}.mlp.router.weight", "0 1"},
                           {"blocks.{i}.ffn.router.offset", "layers.{i}.mlp.router.bias", "0"},
                           {ours + "gate.weight", experts + "gate_up_proj", "0 2 1+"},
                           {ours + "up.weight", experts + "gate_up_proj", "0 2 1+"},
                           {ours + "gate.bias", experts + "gate_up_proj_bias", "0 1+"},
                           {ours + "up.bias", experts + "gate_up_proj_bias", "0 1+"},
                           {ours + "down.weight", experts + "down_proj", "0 2 1"},
                           {ours + "down.bias", experts + "down_proj_bias", "1 0"}}});
}

Keys dbrx_keys() {
  const auto silu = HfJson{{"name", "silu"}};
  return {
      always([](Model& m) { m.centered_norms = true, m.norm_eps = 1e-5; }),
      value({"n_layers", "num_hidden_layers"}, kHfRequired, &Model::layers),
      value({"d_model", "hidden_size"}, kHfRequired, &Model::embed),
      value({"n_heads", "num_attention_heads"}, kHfRequired, &Model::heads),
      value({"vocab_size"}, kHfRequired, &Model::vocab),
      tied(false),
      nested("attn_config",
             {value({"kv_n_heads"}, 1, &Model::kv_heads), soft_cap("clip_qkv", 0, &Model::clip_qkv),
              only("attn_pdrop", 0.0), dbrx_theta()}),
      dbrx_rope(),
      nested("ffn_config", {value({"ffn_hidden_size"}, kHfRequired, &Model::ffn),
                            value({"ffn_hidden_size"}, kHfRequired, &Model::moe, &Moe::ffn),
                            value({"moe_num_experts"}, kHfRequired, &Model::moe, &Moe::experts),
                            value({"moe_top_k"}, kHfRequired, &Model::moe, &Moe::top_k),
                            value({"moe_loss_weight"}, 0.01, &Model::moe, &Moe::balance_loss),
                            only("moe_normalize_expert_weights", 1.0), only("ffn_act_fn", silu),
                            only("moe_jitter_eps", 0.0), only("uniform_expert_assignment", false),
                            irrelevant({"hidden_size"})}),
      only("emb_pdrop", 0.0),
      only("resid_pdrop", 0.0),
      irrelevant({"max_seq_len", "num_key_value_heads", "max_position_embeddings", "router_aux_loss_coef"})};
}

Weights dbrx_weights(const Model&) {
  const std::string block = "blocks.{i}.", attn = block + "norm_attn_norm.attn.", ffn = block + "ffn.";
  return {{"embed.weight", "wte.weight", "0 1"},
          {"final_norm.weight", "norm_f.weight", "0"},
          {"head.weight", "/lm_head.weight", "0 1"},
          {"blocks.{i}.attn_norm.weight", block + "norm_attn_norm.norm_1.weight", "0"},
          {"blocks.{i}.ffn_norm.weight", block + "norm_attn_norm.norm_2.weight", "0"},
          {"blocks.{i}.attn.wq.weight", attn + "Wqkv.weight", "+01 2"},
          {"blocks.{i}.attn.wk.weight", attn + "Wqkv.weight", "+01 2"},
          {"blocks.{i}.attn.wv.weight", attn + "Wqkv.weight", "+01 2"},
          {"blocks.{i}.attn.wo.weight", attn + "out_proj.weight", "0 12"},
          {"blocks.{i}.ffn.router.weight", ffn + "router.layer.weight", "0 1"},
          {"blocks.{i}.ffn.experts.gate.weight", ffn + "experts.mlp.w1", "01 2"},
          {"blocks.{i}.ffn.experts.up.weight", ffn + "experts.mlp.v1", "01 2"},
          {"blocks.{i}.ffn.experts.down.weight", ffn + "experts.mlp.w2", "02 1"}};
}

Keys llama4_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {always([](Model& m) { m.moe.scale_input = true, m.moe.score = RouterScore::Sigmoid; }),
        tied(false),
        value({"intermediate_size_mlp"}, kHfRequired, &Model::ffn),
        value({"intermediate_size"}, kHfRequired, &Model::moe, &Moe::ffn),
        value({"intermediate_size"}, kHfRequired, &Model::moe, &Moe::shared_ffn),
        kv_heads(),
        head_dim(128),
        norm_eps(1e-5),
        rope_key(5e5),
        attention_bias(false),
        value({"use_qk_norm"}, true, &Model::qk_unit_norm),
        no_rope_layers(),
        chunked_layers(),
        temperature(),
        value({"num_local_experts"}, kHfRequired, &Model::moe, &Moe::experts),
        value({"num_experts_per_tok"}, 1, &Model::moe, &Moe::top_k),
        expert_interval(),
        moe_layers(),
        balance_loss("router_aux_loss_coef", 0.001),
        only("router_jitter_noise", 0.0),
        irrelevant({"for_llm_compressor"})}});
}

// Q and K are stored for a rotation of neighbours; experts as [in, out].
Weights llama4_weights(const Model&) {
  const std::string attn = "layers.{i}.self_attn.", ffn = "layers.{i}.feed_forward.",
                    ours = "blocks.{i}.ffn.";
  return joined<Weights>({llama_ends(),
                          {{"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"},
                           {"blocks.{i}.attn.wq.weight", attn + "q_proj.weight", "01~ 2"},
                           {"blocks.{i}.attn.wk.weight", attn + "k_proj.weight", "01~ 2"},
                           {"blocks.{i}.attn.wv.weight", attn + "v_proj.weight", "01 2"},
                           {"blocks.{i}.attn.wq.bias", attn + "q_proj.bias", "01~"},
                           {"blocks.{i}.attn.wk.bias", attn + "k_proj.bias", "01~"},
                           {"blocks.{i}.attn.wv.bias", attn + "v_proj.bias", "01"},
                           {"blocks.{i}.attn.wo.weight", attn + "o_proj.weight", "0 12"},
                           {"blocks.{i}.attn.wo.bias", attn + "o_proj.bias", "0"},
                           {"blocks.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
                           {ours + "gate.weight", ffn + "gate_proj.weight", "0 1"},
                           {ours + "up.weight", ffn + "up_proj.weight", "0 1"},
                           {ours + "down.weight", ffn + "down_proj.weight", "0 1"},
                           {ours + "router.weight", ffn + "router.weight", "0 1"},
                           {ours + "experts.gate.weight", ffn + "experts.gate_up_proj", "0 2 +1"},
                           {ours + "experts.up.weight", ffn + "experts.gate_up_proj", "0 2 +1"},
                           {ours + "experts.down.weight", ffn + "experts.down_proj", "0 2 1"},
                           {ours + "shared.gate.weight", ffn + "shared_expert.gate_proj.weight", "0 1"},
                           {ours + "shared.up.weight", ffn + "shared_expert.up_proj.weight", "0 1"},
                           {ours + "shared.down.weight", ffn + "shared_expert.down_proj.weight", "0 1"}}});
}

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
        value({"topk_group"}, 1, &Model::moe, &Moe::groups_kept), next_token_layers()}});
}

Weights glm4_moe_weights(const Model& m) {
  return joined<Weights>(
      {llama_ends(),
       llama_attention(),
       {{"blocks.{i}.ffn.router.bias", "layers.{i}.mlp.gate.e_score_correction_bias", "0"}},
       llama_ffn(),
       split_experts(),
       fused_experts(),
       shared_weights("shared_experts"),
       next_token_weights(m)});
}

}  // namespace quintet::config::hf_parts
