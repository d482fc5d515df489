#include "config/hf/config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "config/hf/keys.h"

namespace quintet::config {

// Keys of every family that do not change what the model computes from its weights: names and versions, token
// ids, defaults of generation, outputs of Python classes.
const std::set<std::string>& hf_irrelevant_keys() {
  static const std::set<std::string> kKeys = {"_attn_implementation",
                                              "_attn_implementation_autoset",
                                              "_commit_hash",
                                              "_name_or_path",
                                              "auto_map",
                                              "bad_words_ids",
                                              "begin_suppress_tokens",
                                              "bos_token_id",
                                              "cross_attention_hidden_size",
                                              "decoder_start_token_id",
                                              "diversity_penalty",
                                              "do_sample",
                                              "dtype",
                                              "early_stopping",
                                              "encoder_no_repeat_ngram_size",
                                              "eos_token_id",
                                              "exponential_decay_length_penalty",
                                              "finetuning_task",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "id2label",
                                              "is_decoder",
                                              "label2id",
                                              "length_penalty",
                                              "max_length",
                                              "max_new_tokens",
                                              "min_length",
                                              "no_repeat_ngram_size",
                                              "num_beam_groups",
                                              "num_beams",
                                              "num_labels",
                                              "num_return_sequences",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_past",
                                              "output_router_logits",
                                              "output_scores",
                                              "pad_token_id",
                                              "prefix",
                                              "pretraining_tp",
                                              "problem_type",
                                              "remove_invalid_values",
                                              "repetition_penalty",
                                              "return_dict",
                                              "return_dict_in_generate",
                                              "sep_token_id",
                                              "suppress_tokens",
                                              "task_specific_params",
                                              "temperature",
                                              "tf_legacy_loss",
                                              "tokenizer_class",
                                              "top_k",
                                              "top_p",
                                              "torch_dtype",
                                              "torchscript",
                                              "transformers_version",
                                              "typical_p",
                                              "unsloth_fixed",
                                              "unsloth_version",
                                              "use_bfloat16",
                                              "use_cache"};
  return kKeys;
}

namespace {

// Keys of every family with one value that is supported.
std::vector<HfKey> common_keys() {
  return {only("is_encoder_decoder", false),      only("add_cross_attention", false),
          only("tie_encoder_decoder", false),     only("chunk_size_feed_forward", 0),
          only("pruned_heads", HfJson::object()), value({"initializer_range"}, 0.02, &Model::init_stddev)};
}

constexpr const char* kTextConfig = "text_config";

// Keys beside text_config that describe the other parts of a model with images.
const std::set<std::string>& keys_of_other_parts() {
  static const std::set<std::string> kKeys = {
      "audio_token_id",       "boi_token_index",     "boi_token_id",
      "eoi_token_index",      "eoi_token_id",        "image_token_index",
      "image_token_id",       "mm_tokens_per_image", "multimodal_projector_bias",
      "projector_hidden_act", "spatial_merge_size",  "vision_config",
      "vision_feature_layer", "tie_word_embeddings", kTextConfig};
  return kKeys;
}

// What the classes of transformers assume where the text part of a published file says nothing.
HfJson defaults_of_text(const HfFamily& family) {
  if (family.text_type != "gemma3_text") return HfJson::object();
  return {{"vocab_size", 262208},   {"num_attention_heads", 8}, {"num_key_value_heads", 4},
          {"sliding_window", 4096}, {"hidden_size", 2304},      {"intermediate_size", 9216},
          {"num_hidden_layers", 26}};
}

// The config that the family's keys are in: of a model with images the one of its text part, complete.
HfJson text_part(const HfJson& config, const HfFamily& family, HfProblems& problems) {
  if (family.text_type.empty()) return config;
  const HfJson* const inner = find_key(config, {kTextConfig});
  if (inner == nullptr || !inner->is_object()) {
    problems.add("lacks text_config, the part that is trained");
    return HfJson::object();
  }
  HfJson text = *inner;
  const HfJson type = text.value("model_type", HfJson(family.text_type));
  if (type != HfJson(family.text_type))
    problems.add("text_config: model_type = {} is not supported; only \"{}\"", type.dump(), family.text_type);
  const HfJson defaults = defaults_of_text(family);
  for (const auto& [key, value] : defaults.items())
    if (!text.contains(key)) text[key] = value;
  if (const HfJson* const tied = find_key(config, {"tie_word_embeddings"}); tied != nullptr) {
    const HfJson* const own = find_key(text, {"tie_word_embeddings"});
    if (own != nullptr && *own != *tied)
      problems.add("tie_word_embeddings = {} contradicts text_config, which has {}", tied->dump(),
                   own->dump());
    text["tie_word_embeddings"] = *tied;
  }
  return text;
}

void resolve_sizes(Model& m) {
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.mla.kv_rank > 0)
    m.head_dim = m.mla.nope_dim + m.mla.rope_dim;
  else if (m.head_dim == 0 && m.heads > 0)
    m.head_dim = m.embed / m.heads;
  if (m.family == Family::Gpt2 && m.ffn == 0) m.ffn = 4 * m.embed;
  if (m.moe.experts > 0 && !m.has_dense_block()) m.ffn = m.moe.ffn;
}

// Keys of training, which a config.json says nothing reliable about: an export ignores them, and a recipe may
// set them beside model.hf.
struct TrainingKey {
  std::string_view key;
  void (*copy)(const Model& from, Model& to);
};
constexpr TrainingKey kTrainingKeys[] = {
    {"model.dropout", [](const Model& a, Model& b) { b.dropout = a.dropout; }},
    {"model.init", [](const Model& a, Model& b) { b.init = a.init; }},
    {"model.init_stddev", [](const Model& a, Model& b) { b.init_stddev = a.init_stddev; }},
    {"model.moe.upcycle", [](const Model& a, Model& b) { b.moe.upcycle = a.moe.upcycle; }},
    {"model.moe.upcycle_slices",
     [](const Model& a, Model& b) { b.moe.upcycle_slices = a.moe.upcycle_slices; }},
    {"model.moe.balance_loss", [](const Model& a, Model& b) { b.moe.balance_loss = a.moe.balance_loss; }},
    {"model.moe.balance_scope", [](const Model& a, Model& b) { b.moe.balance_scope = a.moe.balance_scope; }},
    {"model.moe.balance.micro_batch",
     [](const Model& a, Model& b) { b.moe.balance.micro_batch = a.moe.balance.micro_batch; }},
    {"model.moe.balance.sequence",
     [](const Model& a, Model& b) { b.moe.balance.sequence = a.moe.balance.sequence; }},
    {"model.moe.balance.global",
     [](const Model& a, Model& b) { b.moe.balance.global = a.moe.balance.global; }},
    {"model.moe.jitter", [](const Model& a, Model& b) { b.moe.jitter = a.moe.jitter; }},
    {"model.moe.z_loss", [](const Model& a, Model& b) { b.moe.z_loss = a.moe.z_loss; }},
    {"model.moe.bias_rate",  // its size; whether there are biases is part of the architecture
     [](const Model& a, Model& b) {
       if ((a.moe.bias_rate > 0) == (b.moe.bias_rate > 0)) b.moe.bias_rate = a.moe.bias_rate;
     }},
    {"model.moe.capacity_factor",
     [](const Model& a, Model& b) { b.moe.capacity_factor = a.moe.capacity_factor; }},
    {"model.moe.eval_capacity_factor",
     [](const Model& a, Model& b) { b.moe.eval_capacity_factor = a.moe.eval_capacity_factor; }},
    {"model.moe.min_capacity", [](const Model& a, Model& b) { b.moe.min_capacity = a.moe.min_capacity; }},
    {"model.moe.drop", [](const Model& a, Model& b) { b.moe.drop = a.moe.drop; }},
    {"model.moe.capacity_group",
     [](const Model& a, Model& b) { b.moe.capacity_group = a.moe.capacity_group; }},
    {"model.moe.pad", [](const Model& a, Model& b) { b.moe.pad = a.moe.pad; }},
    {"model.moe.receive_bound", [](const Model& a, Model& b) { b.moe.receive_bound = a.moe.receive_bound; }},
    {"model.moe.force_balance", [](const Model& a, Model& b) { b.moe.force_balance = a.moe.force_balance; }},
};

void copy_training_settings(const Model& from, Model& to) {
  for (const TrainingKey& key : kTrainingKeys) key.copy(from, to);
  to.rope_scaling.positions = from.rope_scaling.positions;
  to.preset = from.preset, to.demands = from.demands, to.hf = from.hf;
}

HfJson written(const Model& model, const HfFamily& family) {
  HfJson config = HfJson::object();
  config["architectures"] = {std::string(family.architectures[0])};
  config["model_type"] = std::string(family.type);
  HfJson text = HfJson::object();
  HfJson& keys = family.text_type.empty() ? config : text;
  if (!family.text_type.empty()) text["model_type"] = std::string(family.text_type);
  for (const HfKey& key : family.keys()) key.write(model, keys);
  keys["initializer_range"] = model.init_stddev;
  if (!family.text_type.empty()) config[kTextConfig] = std::move(text);
  return config;
}

// Changes what differs between `then` and `now`, the same keys before and after.
void merge_changes(HfJson& config, const HfJson& then, const HfJson& now) {
  for (const auto& [key, value] : now.items()) {
    const HfJson old = then.value(key, HfJson());
    if (key == "max_position_embeddings" || old == value) continue;
    HfJson& place = config[key];
    if (key != "rope_parameters" && value.is_object() && old.is_object() && place.is_object())
      merge_changes(place, old, value);
    else
      place = value;
    if (key == "rope_parameters") config.erase("rope_theta"), config.erase("rope_scaling");
  }
}

// Weights that are read are plain, or in one of two codes; the files' own scales say nothing of their blocks.
void check_quantisation(const HfJson& config, HfProblems& problems) {
  const HfJson* const found = find_key(config, {"quantization_config"});
  if (found == nullptr) return;
  const HfJson none;
  const HfJson method = found->is_object() ? found->value("quant_method", none) : none;
  const HfJson blocks = found->is_object() ? found->value("weight_block_size", none) : none;
  if (method == "mxfp4" || (method == "fp8" && (blocks.is_null() || blocks == HfJson({128, 128})))) return;
  problems.add(
      "quantization_config: quant_method = {}{} is not supported; only \"fp8\" with weight_block_size "
      "[128,128] and \"mxfp4\". Take the model's folder that is not quantised",
      method.dump(), blocks.is_null() ? "" : " with weight_block_size " + blocks.dump());
}

}  // namespace

HfConfig read_hf_config(std::string_view text) {
  HfConfig result;
  HfProblems problems;
  const HfJson config = base::parse_ordered_json(text);
  if (!config.is_object()) {
    result.problems.push_back(config.is_discarded() ? "is " + base::json_fault(text)
                                                    : "is not a JSON object");
    return result;
  }
  const HfJson* const type = find_key(config, {"model_type"});
  const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  result.family = find_hf_family(name);
  if (result.family == nullptr) {
    std::string known;
    for (const HfFamily& f : hf_families()) known += (known.empty() ? "" : ", ") + std::string(f.type);
    result.problems.push_back(type == nullptr ? fmt::format("lacks model_type; supported: {}", known)
                                              : fmt::format("model_type = {} is not supported; supported: {}",
                                                            type->dump(), known));
    return result;
  }
  if (const HfJson* const list = find_key(config, {"architectures"}); list != nullptr) {
    bool accepted = false;
    if (list->is_array() && list->size() == 1 && (*list)[0].is_string())
      for (const std::string_view a : result.family->architectures)
        accepted = accepted || (*list)[0].get<std::string>() == a;
    if (!accepted)
      problems.add("architectures = {} is not supported; only [\"{}\"]", list->dump(),
                   result.family->architectures[0]);
  }
  std::set<std::string> known = hf_irrelevant_keys();
  known.insert({"model_type", "architectures", "quantization_config"});
  const auto refuse_unknown = [&](const HfJson& object, const std::string& type) {
    for (const auto& [key, value] : object.items()) {
      if (known.contains(key)) continue;
      const std::vector<std::string> names(known.begin(), known.end());
      const auto near = base::nearest_word(key, names);
      problems.add("{} = {} is not a key that model_type \"{}\" is known to have{}", key, value.dump(), type,
                   near ? fmt::format("; did you mean {}?", *near) : "");
    }
  };
  check_quantisation(config, problems);
  const HfJson keys_from = text_part(config, *result.family, problems);
  if (!result.family->text_type.empty()) check_quantisation(keys_from, problems);
  if (!result.family->text_type.empty()) {
    std::set<std::string> own = keys_of_other_parts();
    own.insert(known.begin(), known.end());
    Model whole;  // what it says of the text part is in text_config again
    for (const HfKey& key : common_keys()) {
      key.read(config, whole, problems);
      own.insert(key.names.begin(), key.names.end());
    }
    std::swap(known, own);
    refuse_unknown(config, name);
    std::swap(known, own);
  }
  for (const auto& keys : {result.family->keys(), common_keys()})
    for (const HfKey& key : keys) {
      key.read(keys_from, result.model, problems);
      known.insert(key.names.begin(), key.names.end());
    }
  refuse_unknown(keys_from, result.family->text_type.empty() ? name : std::string(result.family->text_type));
  if (const HfJson* const layers = find_key(config, {"num_nextn_predict_layers", "num_mtp_layers"});
      layers != nullptr && layers->is_number_integer() && known.contains("num_nextn_predict_layers"))
    result.predict_layers = std::clamp<int64_t>(layers->get<int64_t>(), 0, 1 << 10);
  resolve_sizes(result.model);
  result.problems = std::move(problems.list);
  return result;
}

const HfFamily* hf_family_of(const Model& model, std::string* why_not) {
  std::string tried;
  for (const HfFamily& family : hf_families()) {
    if (!family.text_type.empty()) continue;
    HfConfig back = read_hf_config(written(model, family).dump());
    if (!back.problems.empty()) {
      tried += fmt::format("\n  {}: {}", family.type, back.problems[0]);
      continue;
    }
    copy_training_settings(model, back.model);
    if (back.predict_layers == model.mtp.layers) back.model.mtp = model.mtp;
    if (back.model == model) return &family;
  }
  if (why_not != nullptr)
    *why_not = fmt::format("no Hugging Face family that Quintet knows has this combination of [model] keys{}",
                           tried);
  return nullptr;
}

std::string hf_config_text(const Model& model, const HfFamily& family, std::string_view original,
                           std::string_view dtype, int64_t positions) {
  HfJson config = written(model, family);
  const RopeScaling& rope = model.rope_scaling;
  const double extended = static_cast<double>(rope.original_positions) * rope.factor;
  if (!has_learned_positions(model.family))
    config["max_position_embeddings"] = std::max(positions, static_cast<int64_t>(std::round(extended)));
  const HfConfig before = read_hf_config(original);
  if (before.family == &family && before.problems.empty()) {
    const HfJson now = std::move(config), then = written(before.model, family);
    config = HfJson::parse(original);
    merge_changes(config, then, now);
    config.erase("quantization_config");
    config.erase("num_mtp_layers");
    if (before.predict_layers > 0) config["num_nextn_predict_layers"] = model.mtp.layers;
  }
  const bool old = config.contains("torch_dtype");
  config[old ? "torch_dtype" : "dtype"] = dtype;
  return base::json_text(config, 3) + "\n";
}

bool is_free_beside_hf(std::string_view key, bool upcycling) {
  static constexpr std::string_view kOthers[] = {"model.hf", "model.preset", "model.rope_theta",
                                                 "model.mtp.layers", "model.mtp.loss"};
  return std::ranges::count(kTrainingKeys, key, &TrainingKey::key) > 0 ||
         std::ranges::count(kOthers, key) > 0 || key.starts_with("model.rope_scaling.") ||
         (upcycling && (key.starts_with("model.moe.") || key == "model.ffn"));
}

std::optional<std::string> why_no_hf_folder(const base::Path& path, const std::string& as_given) {
  if (base::file_exists(path / kHfConfigFile)) return std::nullopt;
  if (base::file_exists(path / "adapter_config.json"))
    return fmt::format(
        "\"{}\" has an adapter (adapter_config.json), not a model: merge it into its base model with PEFT "
        "(merge_and_unload, then save_pretrained), and name that folder",
        as_given);
  if (base::directory_exists(path))
    return fmt::format("\"{}\" has no {}: it must be a folder as Hugging Face models are published", as_given,
                       kHfConfigFile);
  const size_t slash = as_given.find('/');
  const bool is_name = slash != std::string::npos && slash > 0 && slash + 1 < as_given.size() &&
                       as_given.find('/', slash + 1) == std::string::npos && as_given[0] != '.';
  if (is_name)
    return fmt::format(
        "\"{}\" is not a folder, and Quintet does not download. Run 'hf download {} --local-dir {}', then "
        "set model.hf = \"{}\"",
        as_given, as_given, as_given.substr(slash + 1), as_given.substr(slash + 1));
  return fmt::format("\"{}\" does not exist", as_given);
}

bool has_tokenizer(const base::Path& folder) {
  return base::file_exists(folder / "tokenizer.json") || base::file_exists(folder / "tokenizer.model");
}

}  // namespace quintet::config
