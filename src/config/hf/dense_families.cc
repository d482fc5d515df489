// Gemma 2 and 3, OLMo 2, SmolLM3, Phi-3 and 4, GPT-NeoX, BERT.
#include <cmath>

#include "config/hf/parts.h"

namespace quintet::config::hf_parts {
namespace {

HfKey gelu_gate() {
  return {.names = {"hidden_activation", "hidden_act"},
          .read =
              [](const HfJson& c, Model& m, HfProblems& problems) {
                m.activation = Activation::Gelu;
                // hidden_activation decides; older files also have hidden_act.
                const HfJson* const act = find_key(c, {"hidden_activation"});
                if (act != nullptr && *act != "gelu_pytorch_tanh")
                  problems.add("hidden_activation = {} is not supported; only \"gelu_pytorch_tanh\"",
                               act->dump());
              },
          .write = [](const Model&, HfJson& c) { c["hidden_activation"] = "gelu_pytorch_tanh"; }};
}

// Q.K is divided by the square root of query_pre_attn_scalar.
HfKey attention_divisor() {
  return {.names = {"query_pre_attn_scalar"},
          .read =
              [](const HfJson& c, Model& m, HfProblems& problems) {
                double divisor = 256;
                if (const HfJson* const found = find_key(c, {"query_pre_attn_scalar"}))
                  read_value("query_pre_attn_scalar", *found, divisor, problems);
                if (divisor <= 0)
                  return problems.add("query_pre_attn_scalar must be above 0, got {}", divisor);
                m.attention_scale = 1 / std::sqrt(divisor);
              },
          .write =
              [](const Model& m, HfJson& c) {
                const double scale = m.attention_scale > 0 ? m.attention_scale
                                                           : 1 / std::sqrt(static_cast<double>(m.head_dim));
                const double exact = 1 / (scale * scale), rounded = std::round(exact);
                if (1 / std::sqrt(rounded) == scale)
                  c["query_pre_attn_scalar"] = static_cast<int64_t>(rounded);
                else
                  c["query_pre_attn_scalar"] = exact;
              }};
}

Keys gemma_keys(double attention_cap, double logit_cap) {
  return joined<Keys>(
      {decoder_sizes(),
       {always([](Model& m) {
          m.norms = NormPlaces::Both, m.norm_offset = 1;
          m.embed_scale = std::sqrt(static_cast<double>(m.embed));
        }),
        tied(true), ffn(), kv_heads(), head_dim(256), norm_eps(1e-6), gelu_gate(), attention_divisor(),
        soft_cap("attn_logit_softcapping", attention_cap, &Model::attention_soft_cap),
        soft_cap("final_logit_softcapping", logit_cap, &Model::logit_soft_cap), attention_bias(false),
        only("use_bidirectional_attention", false), irrelevant({"cache_implementation"})}});
}

// A list that has one word for all layers.
HfKey only_full_layers() {
  const auto listed = [](const Model& m) {
    HfJson list = HfJson::array();
    for (int64_t i = 0; i < m.layers; ++i) list.push_back("full_attention");
    return list;
  };
  return {.names = {"layer_types"},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                const HfJson* const list = find_key(c, {"layer_types"});
                if (list != nullptr && *list != listed(m))
                  problems.add("layer_types = {} is not supported; only \"full_attention\" in {} layers",
                               list->dump(), m.layers);
              },
          .write = [=](const Model& m, HfJson& c) { c["layer_types"] = listed(m); }};
}

}  // namespace

Keys gemma2_keys() {
  return joined<Keys>({gemma_keys(50, 30),
                       {layer_windows(2), repeated("sliding_window_size", "sliding_window"), rope_key(1e4)}});
}

Keys gemma3_keys() {
  return joined<Keys>(
      {gemma_keys(0, 0),
       {always([](Model& m) { m.qk_norm = true; }), layer_windows(6, "sliding_window_pattern"),
        rope_key({.theta = 1e6, .by_layer_type = true})}});
}

Weights gemma_weights(const Model&) {
  return joined<Weights>(
      {llama_ends(),
       llama_projections(),
       {{"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"},
        {"blocks.{i}.attn_post_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
        {"blocks.{i}.ffn_norm.weight", "layers.{i}.pre_feedforward_layernorm.weight", "0"},
        {"blocks.{i}.ffn_post_norm.weight", "layers.{i}.post_feedforward_layernorm.weight", "0"}},
       llama_ffn()});
}

Keys olmo2_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {always([](Model& m) {
          m.norms = NormPlaces::Post;
          m.qk_norm = true, m.qk_norm_over = QkNormOver::AllHeads;
        }),
        tied(false), ffn(), kv_heads(), norm_eps(1e-5), rope_key(1e4), attention_bias(false)}});
}

Weights olmo2_weights(const Model&) {
  return joined<Weights>(
      {llama_ends(),
       llama_projections(),
       {{"blocks.{i}.attn_post_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
        {"blocks.{i}.ffn_post_norm.weight", "layers.{i}.post_feedforward_layernorm.weight", "0"}},
       llama_ffn()});
}

Keys smollm3_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {tied(true), ffn(), kv_heads(), head_dim(), norm_eps(1e-6), rope_key(2e6), no_rope_layers(),
        only_full_layers(), only("use_sliding_window", false), attention_bias(false), only("mlp_bias", false),
        irrelevant({"sliding_window", "max_window_layers"})}});
}

Keys phi3_keys() {
  return joined<Keys>(
      {llama_sizes(),
       {tied(false), ffn(), kv_heads(), head_dim(), norm_eps(1e-5), window(), rope_key(partial_rope(1)),
        only("resid_pdrop", 0.0), only("embd_pdrop", 0.0), only("attention_bias", false),
        only("mlp_bias", false), only("lm_head_bias", false),
        irrelevant({"original_max_position_embeddings", "interpolate_factor", "full_attn_mod"})}});
}

// Q, K and V in one tensor, and so gate and up.
Weights phi3_weights(const Model&) {
  const std::string attn = "layers.{i}.self_attn.", mlp = "layers.{i}.mlp.";
  return joined<Weights>({llama_ends(),
                          {{"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"},
                           {"blocks.{i}.attn.wq.weight", attn + "qkv_proj.weight", "+01 2"},
                           {"blocks.{i}.attn.wk.weight", attn + "qkv_proj.weight", "+01 2"},
                           {"blocks.{i}.attn.wv.weight", attn + "qkv_proj.weight", "+01 2"},
                           {"blocks.{i}.attn.wo.weight", attn + "o_proj.weight", "0 12"},
                           {"blocks.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
                           {"blocks.{i}.ffn.gate.weight", mlp + "gate_up_proj.weight", "+0 1"},
                           {"blocks.{i}.ffn.up.weight", mlp + "gate_up_proj.weight", "+0 1"},
                           {"blocks.{i}.ffn.down.weight", mlp + "down_proj.weight", "0 1"}}});
}

// The exact GELU, or its tanh form under any of the names that transformers has for it.
HfKey exact_or_tanh_gelu(const std::string& tanh) {
  return {.names = {"hidden_act"},
          .read =
              [tanh](const HfJson& c, Model& m, HfProblems& problems) {
                const HfJson* const act = find_key(c, {"hidden_act"});
                if (act == nullptr || *act == "gelu") return;
                m.gelu_tanh = *act == "gelu_fast" || *act == "gelu_new" || *act == "gelu_pytorch_tanh";
                if (!m.gelu_tanh)
                  problems.add("hidden_act = {} is not supported; only \"gelu\" and its tanh form \"{}\"",
                               act->dump(), tanh);
              },
          .write = [tanh](const Model& m, HfJson& c) { c["hidden_act"] = m.gelu_tanh ? tanh : "gelu"; }};
}

Keys neox_keys() {
  return joined<Keys>(
      {decoder_sizes(),
       {always([](Model& m) { m.family = Family::Neox; }), tied(false), ffn(),
        value({"layer_norm_eps"}, 1e-5, &Model::norm_eps), exact_or_tanh_gelu("gelu_fast"),
        value({"use_parallel_residual"}, true, &Model::parallel_blocks),
        rope_key(
            {.theta_keys = {"rope_theta", "rotary_emb_base"}, .share_keys = {"rotary_pct"}, .share = 0.25}),
        only("hidden_dropout", 0.0), only("hidden_dropout_prob", 0.0),
        only("attention_probs_dropout_prob", 0.0), only("attention_bias", true),
        irrelevant({"classifier_dropout"})}});
}

// Q, K and V of one head follow each other.
Weights neox_weights(const Model&) {
  const std::string attn = "layers.{i}.attention.", mlp = "layers.{i}.mlp.";
  return {{"embed.weight", "embed_in.weight", "0 1"},
          {"final_norm.weight", "final_layer_norm.weight", "0"},
          {"final_norm.bias", "final_layer_norm.bias", "0"},
          {"head.weight", "/embed_out.weight", "0 1"},
          {"head.weight", "/lm_head.weight", "0 1"},
          {"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"},
          {"blocks.{i}.attn_norm.bias", "layers.{i}.input_layernorm.bias", "0"},
          {"blocks.{i}.attn.wq.weight", attn + "query_key_value.weight", "0+1 2"},
          {"blocks.{i}.attn.wk.weight", attn + "query_key_value.weight", "0+1 2"},
          {"blocks.{i}.attn.wv.weight", attn + "query_key_value.weight", "0+1 2"},
          {"blocks.{i}.attn.wq.bias", attn + "query_key_value.bias", "0+1"},
          {"blocks.{i}.attn.wk.bias", attn + "query_key_value.bias", "0+1"},
          {"blocks.{i}.attn.wv.bias", attn + "query_key_value.bias", "0+1"},
          {"blocks.{i}.attn.wo.weight", attn + "dense.weight", "0 12"},
          {"blocks.{i}.attn.wo.bias", attn + "dense.bias", "0"},
          {"blocks.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"},
          {"blocks.{i}.ffn_norm.bias", "layers.{i}.post_attention_layernorm.bias", "0"},
          {"blocks.{i}.ffn.up.weight", mlp + "dense_h_to_4h.weight", "0 1"},
          {"blocks.{i}.ffn.up.bias", mlp + "dense_h_to_4h.bias", "0"},
          {"blocks.{i}.ffn.down.weight", mlp + "dense_4h_to_h.weight", "0 1"},
          {"blocks.{i}.ffn.down.bias", mlp + "dense_4h_to_h.bias", "0"}};
}

namespace {

// One rate for the two places.
HfKey bert_dropout() {
  const std::vector<std::string> names = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
  return {.names = names,
          .read =
              [names](const HfJson& c, Model& m, HfProblems& problems) {
                double rates[2] = {0.1, 0.1};
                for (size_t i = 0; i < 2; ++i)
                  if (const HfJson* const found = find_key(c, {names[i]}))
                    read_value(names[i], *found, rates[i], problems);
                if (rates[0] != rates[1])
                  problems.add("hidden_dropout_prob {} and attention_probs_dropout_prob {} must be equal",
                               rates[0], rates[1]);
                m.dropout = rates[0];
              },
          .write =
              [names](const Model& m, HfJson& c) {
                for (const std::string& name : names) c[name] = m.dropout;
              }};
}

}  // namespace

Keys bert_keys() {
  return {always([](Model& m) { m.family = Family::Bert, m.init = InitScheme::Normal, m.tied = true; }),
          value({"num_hidden_layers"}, kHfRequired, &Model::layers),
          value({"hidden_size"}, kHfRequired, &Model::embed),
          value({"num_attention_heads"}, kHfRequired, &Model::heads),
          ffn(),
          value({"vocab_size"}, kHfRequired, &Model::vocab),
          value({"max_position_embeddings"}, 512, &Model::max_positions),
          value({"type_vocab_size"}, 2, &Model::token_types),
          value({"layer_norm_eps"}, 1e-12, &Model::norm_eps),
          only("tie_word_embeddings", true),  // else the head has two biases, of which versions use another
          bert_dropout(),
          exact_or_tanh_gelu("gelu_new"),
          only("position_embedding_type", "absolute"),
          only("is_decoder", false),
          irrelevant({"classifier_dropout", "gradient_checkpointing", "directionality", "pooler_fc_size",
                      "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
                      "pooler_type"})};
}

// Old files have gamma and beta in place of weight and bias. The bias of the head has a second name in some,
// decoder.bias, which transformers ties to the first one.
Weights bert_weights(const Model&) {
  Weights weights = {{"embed.weight", "embeddings.word_embeddings.weight", "0 1"},
                     {"positions.weight", "embeddings.position_embeddings.weight", "0 1"},
                     {"token_types.weight", "embeddings.token_type_embeddings.weight", "0 1"}};
  const auto linear = [&](const std::string& ours, const std::string& theirs, const std::string& weight,
                          const std::string& bias) {
    weights.push_back({ours + ".weight", theirs + ".weight", weight});
    weights.push_back({ours + ".bias", theirs + ".bias", bias});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    linear(ours, theirs + ".LayerNorm", "0", "0");
    weights.push_back({ours + ".weight", theirs + ".LayerNorm.gamma", "0"});
    weights.push_back({ours + ".bias", theirs + ".LayerNorm.beta", "0"});
  };
  const std::string block = "blocks.{i}.", layer = "encoder.layer.{i}.", head = "/cls.predictions.";
  norm("embed_norm", "embeddings");
  linear(block + "attn.wq", layer + "attention.self.query", "01 2", "01");
  linear(block + "attn.wk", layer + "attention.self.key", "01 2", "01");
  linear(block + "attn.wv", layer + "attention.self.value", "01 2", "01");
  linear(block + "attn.wo", layer + "attention.output.dense", "0 12", "0");
  norm(block + "attn_norm", layer + "attention.output");
  linear(block + "ffn.up", layer + "intermediate.dense", "0 1", "0");
  linear(block + "ffn.down", layer + "output.dense", "0 1", "0");
  norm(block + "ffn_norm", layer + "output");
  linear("head_transform", head + "transform.dense", "0 1", "0");
  norm("head_norm", head + "transform");
  weights.push_back({"head.weight", head + "decoder.weight", "0 1"});
  weights.push_back({"head.bias", head + "bias", "0"});
  return weights;
}

}  // namespace quintet::config::hf_parts
