#include "config/hf/parts.h"

namespace quintet::config::hf_parts {

Keys decoder_sizes() {
  return {value({"num_hidden_layers"}, kHfRequired, &Model::layers),
          value({"hidden_size"}, kHfRequired, &Model::embed),
          value({"num_attention_heads"}, kHfRequired, &Model::heads),
          value({"vocab_size"}, kHfRequired, &Model::vocab),
          only("attention_dropout", 0.0),
          irrelevant({"max_position_embeddings"})};
}
Keys llama_sizes() { return joined<Keys>({decoder_sizes(), {only("hidden_act", "silu")}}); }
HfKey tied(bool absent) { return value({"tie_word_embeddings"}, absent, &Model::tied); }
HfKey ffn() { return value({"intermediate_size"}, kHfRequired, &Model::ffn); }
HfKey kv_heads() { return value({"num_key_value_heads"}, 0, &Model::kv_heads); }
HfKey head_dim(int64_t absent) { return value({"head_dim"}, absent, &Model::head_dim); }
HfKey norm_eps(double absent) { return value({"rms_norm_eps"}, absent, &Model::norm_eps); }

namespace {
// A window of 0 hides everything in transformers.
void read_window(const HfJson& size, Model& m, HfProblems& problems) {
  if (read_value("sliding_window", size, m.sliding_window, problems) && m.sliding_window == 0)
    problems.add("sliding_window must be at least 1, or null for none, got 0");
}
}  // namespace

HfKey window() {
  HfKey key = optional_size("sliding_window", &Model::sliding_window);
  key.read = [](const HfJson& c, Model& m, HfProblems& problems) {
    if (const HfJson* const size = find_key(c, {"sliding_window"})) read_window(*size, m, problems);
  };
  return key;
}

namespace {

constexpr const char* kWindowed = "sliding_attention";
constexpr const char* kFull = "full_attention";

HfJson types_of(const Model& m) {
  HfJson types = HfJson::array();
  for (int64_t i = 0; i < m.layers; ++i) types.push_back(m.windowed(i) ? kWindowed : kFull);
  return types;
}
HfJson types_of(int64_t layers, int64_t window, int64_t every) {
  return types_of(Model{.layers = layers, .sliding_window = window, .full_attention_every = every});
}

// Reads a list that `every` does not describe: another interval of full layers, or else their numbers.
void read_types(const HfJson& types, int64_t& every, Model& m, HfProblems& problems) {
  std::vector<int64_t> full;
  bool known = types.is_array() && std::ssize(types) == m.layers;
  for (int64_t i = 0; known && i < m.layers; ++i) {
    const HfJson& type = types[static_cast<size_t>(i)];
    if (type == kFull) full.push_back(i);
    known = type == kFull || type == kWindowed;
  }
  if (!known)
    return problems.add(
        "layer_types = {} is not supported; only \"{}\" and \"{}\", one for each of {} layers", types.dump(),
        kFull, kWindowed, m.layers);
  every = full.empty() ? 0 : full[0] + 1;
  if (types == types_of(m.layers, every == 1 ? 0 : 1, every)) return;
  every = 0;
  m.full_attention_layers = std::move(full);
}

}  // namespace

HfKey layer_windows(int64_t interval, const std::string& interval_key) {
  std::vector<std::string> names = {"sliding_window", "layer_types"};
  if (!interval_key.empty()) names.push_back(interval_key), names.push_back("_" + interval_key);
  return {.names = names,
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                int64_t every = interval;
                if (!interval_key.empty())
                  if (const HfJson* const found = find_key(c, {interval_key, "_" + interval_key}))
                    read_value(interval_key, *found, every, problems);
                const HfJson* const types = find_key(c, {"layer_types"});
                if (types != nullptr && *types != types_of(m.layers, 1, every))
                  read_types(*types, every, m, problems);
                const HfJson* const size = find_key(c, {"sliding_window"});
                if (size != nullptr && every != 1) read_window(*size, m, problems);
                if (m.sliding_window > 0)
                  m.full_attention_every = every;
                else
                  m.full_attention_layers.clear();  // no layer has a window
              },
          .write =
              [=](const Model& m, HfJson& c) {
                c["sliding_window"] = m.sliding_window > 0 ? HfJson(m.sliding_window) : HfJson();
                c["layer_types"] = types_of(m);
                if (!interval_key.empty() && m.full_attention_every > 0)
                  c[interval_key] = m.full_attention_every;
              }};
}

HfKey attention_bias(bool absent) {
  HfKey key = value({"attention_bias"}, absent, &Model::qkv_bias);
  const HfKey out = value({"attention_bias"}, absent, &Model::out_bias);
  key.read = [first = key.read, out](const HfJson& c, Model& m, HfProblems& problems) {
    HfProblems once;
    first(c, m, problems), out.read(c, m, once);
  };
  return key;
}

// no_rope_layers has 1 for a layer with RoPE and 0 for one without.
HfKey no_rope_layers() {
  const auto listed = [](const Model& m) {
    HfJson list = HfJson::array();
    for (int64_t i = 0; i < m.layers; ++i) list.push_back(m.rotated(i) ? 1 : 0);
    return list;
  };
  return {.names = {"no_rope_layers", "no_rope_layer_interval"},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                m.no_rope_every = 4;
                if (const HfJson* const every = find_key(c, {"no_rope_layer_interval"}))
                  read_value("no_rope_layer_interval", *every, m.no_rope_every, problems);
                const HfJson* const list = find_key(c, {"no_rope_layers"});
                if (list == nullptr || *list == listed(m)) return;
                m.no_rope_every = 0;
                for (size_t i = 0; list->is_array() && i < list->size() && m.no_rope_every == 0; ++i)
                  if ((*list)[i] == 0) m.no_rope_every = static_cast<int64_t>(i) + 1;
                if (*list != listed(m))
                  problems.add("no_rope_layers = {} is not supported; only 0 for every n-th of {} layers",
                               list->dump(), m.layers);
              },
          .write =
              [=](const Model& m, HfJson& c) {
                c["no_rope_layers"] = listed(m);
                if (m.no_rope_every > 0) c["no_rope_layer_interval"] = m.no_rope_every;
              }};
}

HfKey soft_cap(const std::string& name, double absent, double Model::*field) {
  return {.names = {name},
          .read =
              [=](const HfJson& c, Model& m, HfProblems& problems) {
                m.*field = c.contains(name) ? 0 : absent;
                const HfJson* const found = find_key(c, {name});
                if (found != nullptr && read_value(name, *found, m.*field, problems) && m.*field <= 0)
                  problems.add("{} must be above 0, or null for none, got {}", name, found->dump());
              },
          .write = [=](const Model& m, HfJson& c) { c[name] = m.*field > 0 ? HfJson(m.*field) : HfJson(); }};
}

HfKey balance_loss(const char* name, double absent) {
  return value({name}, absent, &Model::moe, &Moe::balance_loss);
}

HfKey next_token_layers() {
  HfKey key = irrelevant({"num_nextn_predict_layers", "num_mtp_layers"});
  key.write = [](const Model& m, HfJson& config) {
    if (m.mtp.layers > 0) config["num_nextn_predict_layers"] = m.mtp.layers;
  };
  return key;
}

HfKey shared_experts() {
  return {
      .names = {"n_shared_experts"},
      .read =
          [](const HfJson& c, Model& m, HfProblems& problems) {
            int64_t count = 0;
            const HfJson* const found = find_key(c, {"n_shared_experts"});
            if (found != nullptr && read_value("n_shared_experts", *found, count, problems))
              m.moe.shared_ffn = count * m.moe.ffn;
          },
      .write = [](const Model& m,
                  HfJson& c) { c["n_shared_experts"] = m.moe.ffn > 0 ? m.moe.shared_ffn / m.moe.ffn : 0; }};
}

Weights llama_ends() {
  return {{"embed.weight", "embed_tokens.weight", "0 1"},
          {"final_norm.weight", "norm.weight", "0"},
          {"head.weight", "/lm_head.weight", "0 1"}};
}

Weights llama_projections() {
  return {{"blocks.{i}.attn.wq.weight", "layers.{i}.self_attn.q_proj.weight", "01 2"},
          {"blocks.{i}.attn.wk.weight", "layers.{i}.self_attn.k_proj.weight", "01 2"},
          {"blocks.{i}.attn.wv.weight", "layers.{i}.self_attn.v_proj.weight", "01 2"},
          {"blocks.{i}.attn.wq.bias", "layers.{i}.self_attn.q_proj.bias", "01"},
          {"blocks.{i}.attn.wk.bias", "layers.{i}.self_attn.k_proj.bias", "01"},
          {"blocks.{i}.attn.wv.bias", "layers.{i}.self_attn.v_proj.bias", "01"},
          {"blocks.{i}.attn.q_norm.weight", "layers.{i}.self_attn.q_norm.weight", "0"},
          {"blocks.{i}.attn.k_norm.weight", "layers.{i}.self_attn.k_norm.weight", "0"},
          {"blocks.{i}.attn.wo.weight", "layers.{i}.self_attn.o_proj.weight", "0 12"},
          {"blocks.{i}.attn.wo.bias", "layers.{i}.self_attn.o_proj.bias", "0"}};
}

Weights llama_attention() {
  return joined<Weights>(
      {{{"blocks.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight", "0"}},
       llama_projections(),
       {{"blocks.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight", "0"}}});
}

Weights llama_ffn() {
  return {{"blocks.{i}.ffn.gate.weight", "layers.{i}.mlp.gate_proj.weight", "0 1"},
          {"blocks.{i}.ffn.up.weight", "layers.{i}.mlp.up_proj.weight", "0 1"},
          {"blocks.{i}.ffn.down.weight", "layers.{i}.mlp.down_proj.weight", "0 1"}};
}

Weights fused_experts() {
  return {{"blocks.{i}.ffn.experts.gate.weight", "layers.{i}.mlp.experts.gate_up_proj", "0 +1 2"},
          {"blocks.{i}.ffn.experts.up.weight", "layers.{i}.mlp.experts.gate_up_proj", "0 +1 2"},
          {"blocks.{i}.ffn.experts.down.weight", "layers.{i}.mlp.experts.down_proj", "0 1 2"}};
}

Weights split_experts() {
  return {{"blocks.{i}.ffn.router.weight", "layers.{i}.mlp.gate.weight", "0 1"},
          {"blocks.{i}.ffn.experts.gate.weight", "layers.{i}.mlp.experts.{e}.gate_proj.weight", "1 2"},
          {"blocks.{i}.ffn.experts.up.weight", "layers.{i}.mlp.experts.{e}.up_proj.weight", "1 2"},
          {"blocks.{i}.ffn.experts.down.weight", "layers.{i}.mlp.experts.{e}.down_proj.weight", "1 2"}};
}

Weights next_token_weights(const Model& m) {
  if (m.mtp.layers == 0) return {};
  const std::string block = "layers.{i}.", own = fmt::format("layers.{}.", m.layers);
  return {{"blocks.{i}.embed_norm.weight", block + "enorm.weight", "0"},
          {"blocks.{i}.hidden_norm.weight", block + "hnorm.weight", "0"},
          {"blocks.{i}.join_embed.weight", block + "eh_proj.weight", "0 +1"},
          {"blocks.{i}.join_hidden.weight", block + "eh_proj.weight", "0 +1"},
          {"blocks.{i}.final_norm.weight", block + "shared_head.norm.weight", "0"},
          {"embed.weight", own + "embed_tokens.weight", "0 1", true},
          {m.tied ? "embed.weight" : "head.weight", own + "shared_head.head.weight", "0 1", true}};
}

Weights shared_weights(const std::string& name) {
  return {{"blocks.{i}.ffn.shared.gate.weight", "layers.{i}.mlp." + name + ".gate_proj.weight", "0 1"},
          {"blocks.{i}.ffn.shared.up.weight", "layers.{i}.mlp." + name + ".up_proj.weight", "0 1"},
          {"blocks.{i}.ffn.shared.down.weight", "layers.{i}.mlp." + name + ".down_proj.weight", "0 1"}};
}

}  // namespace quintet::config::hf_parts
