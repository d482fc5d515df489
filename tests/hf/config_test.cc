#include "config/hf/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "base/temp_folder.h"
#include "config/key_docs.h"
#include "config/parse.h"
#include "config/presets.h"
#include "config/print.h"
#include "config/problem.h"
#include "config/validate.h"
#include "support/folders.h"

namespace quintet::config {
namespace {

using test::TempFolder;

const std::string kLlama =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300,
  "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "max_position_embeddings": 8192, "hidden_act": "silu", "transformers_version": "4.40.0"})";

std::string with(std::string text, const std::string& keys) { return text.insert(1, keys + ", "); }

std::string problems_of_text(const std::string& text) {
  std::string all;
  for (const std::string& p : read_hf_config(text).problems) all += p + "\n";
  return all;
}

TEST(HfConfig, SizesAreTaken) {
  const HfConfig c = read_hf_config(kLlama);
  ASSERT_EQ(problems_of_text(kLlama), "");
  EXPECT_EQ(c.family->type, "llama");
  const Model& m = c.model;
  EXPECT_EQ(std::vector<int64_t>({m.layers, m.embed, m.heads, m.kv_heads, m.head_dim, m.ffn, m.vocab}),
            std::vector<int64_t>({2, 64, 4, 2, 16, 96, 300}));
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_TRUE(m.tied);
  EXPECT_EQ(m.init_stddev, 0.02);
  EXPECT_EQ(read_hf_config(with(kLlama, R"("initializer_range": 0.006)")).model.init_stddev, 0.006);
}

TEST(HfConfig, NothingIsIgnored) {
  EXPECT_CONTAINS(problems_of_text(with(kLlama, R"("sliding_windw": 4)")), "sliding_windw = 4 is not a key");
  EXPECT_CONTAINS(problems_of_text(with(kLlama, R"("logit_scale": 2.0)")), "logit_scale = 2.0 is not a key");
  EXPECT_CONTAINS(problems_of_text(with(kLlama, R"("mlp_bias": true)")), "mlp_bias = true is not supported");
  EXPECT_CONTAINS(problems_of_text(with(kLlama, R"("rope_scaling": {"type": "dynamic", "factor": 2.0})")),
                  "type \"dynamic\"");
  EXPECT_CONTAINS(
      problems_of_text(with(kLlama, R"("rope_scaling": {"rope_type": "llama3", "factor": 2.0, "x": 1})")),
      "x = 1");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "bloom"})"),
                  "model_type = \"bloom\" is not supported; supported: llama");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "llama"})"),
                  "lacks num_hidden_layers\nlacks hidden_size");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "llama", "hidden_size": "x"})"),
                  "hidden_size must be an integer");
  EXPECT_CONTAINS(problems_of_text("[1]"), "not a JSON object");
}

// Every preset has a family, whose config.json reads back as the same model.
TEST(HfConfig, EveryPresetHasAFamily) {
  for (const Model& preset : presets()) {
    const Recipe recipe = parse("[model]\npreset = \"" + preset.preset +
                                "\"\n[data]\nseq_len = 64\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n");
    std::string why;
    const HfFamily* const family = hf_family_of(recipe.model, &why);
    ASSERT_NE(family, nullptr) << preset.preset << ": " << why;
    const HfConfig back = read_hf_config(hf_config_text(recipe.model, *family, "", "bfloat16", 64));
    EXPECT_TRUE(back.problems.empty()) << preset.preset << ": " << back.problems[0];
    EXPECT_EQ(back.model.layers, recipe.model.layers) << preset.preset;
    EXPECT_TRUE(back.model.rope_scaling == recipe.model.rope_scaling) << preset.preset;
  }
}

// A key of experts either changes the architecture, so that config.json must agree with it, or training
// alone, so that it is free beside model.hf and an export ignores it.
TEST(HfConfig, EveryKeyOfExpertsIsOfTheArchitectureOrOfTraining) {
  const std::set<std::string> architecture = {
      "experts",     "top_k", "ffn",   "latent", "shared_ffn", "shared_gate", "bias",   "scale_input",
      "first_dense", "every", "score", "order",  "normalise",  "scale",       "groups", "groups_kept"};
  for (const KeyFacts& key : recipe_keys())
    if (key.section().starts_with("model.moe"))
      EXPECT_NE(is_free_beside_hf(key.key, false), architecture.contains(key.name())) << key.key;

  Model mixtral = *find_preset("mixtral-8x7b");
  Moe& moe = mixtral.moe;
  moe.balance_loss = 0.02, moe.z_loss = 0.001, moe.capacity_factor = 1.25, moe.eval_capacity_factor = 2,
  moe.min_capacity = 4;
  moe.balance.sequence = 1e-4, moe.jitter = 0.01;
  moe.drop = DropPolicy::Position, moe.capacity_group = 2, moe.pad = true, moe.receive_bound = 1.5;
  std::string why;
  EXPECT_NE(hf_family_of(mixtral, &why), nullptr) << why;
}

// config.json as it is published, each with the preset that it must give; empty: there is none.
TEST(HfConfig, PublishedFilesAreTheirPresets) {
  std::istringstream lines(
      base::read_file(base::Path(test::source_dir()) / "tests/hf/published_configs.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::ordered_json::parse(line);
    const std::string name = json.at("preset");
    json.erase("preset");
    SCOPED_TRACE(json.at("model_type").get<std::string>() + " " + name);
    const HfConfig c = read_hf_config(json.dump());
    EXPECT_EQ(problems_of_text(json.dump()), "");
    if (name.empty()) continue;
    Model expected = *find_preset(name);
    expected.preset = "";
    expected.init = c.model.init, expected.init_stddev = c.model.init_stddev;  // a config has one number only
    EXPECT_TRUE(c.model == expected);
  }
}

TEST(HfConfig, EncodersAttendToBothSides) {
  const std::string bert =
      R"({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300})";
  const HfConfig c = read_hf_config(bert);
  EXPECT_EQ(problems_of_text(bert), "");
  EXPECT_EQ(c.model.family, Family::Bert);
  EXPECT_EQ(std::pair(c.model.max_positions, c.model.token_types), std::pair(int64_t{512}, int64_t{2}));
  EXPECT_EQ(c.model.dropout, 0.1);
  EXPECT_TRUE(c.model.tied);
  const auto problem = [&](const std::string& key) { return problems_of_text(with(bert, key)); };
  EXPECT_EQ(problem(R"("is_decoder": false)"), "");
  EXPECT_CONTAINS(problem(R"("is_decoder": true)"), "is_decoder = true is not supported; only false");
  EXPECT_CONTAINS(problem(R"("position_embedding_type": "relative_key")"), "only \"absolute\"");
  EXPECT_CONTAINS(problem(R"("hidden_dropout_prob": 0.2)"), "must be equal");
  EXPECT_CONTAINS(problem(R"("tie_word_embeddings": false)"), "only true");
  EXPECT_CONTAINS(problem(R"("hidden_act": "relu")"), "only \"gelu\" and its tanh form \"gelu_new\"");
  EXPECT_TRUE(read_hf_config(with(bert, R"("hidden_act": "gelu_new")")).model.gelu_tanh);
}

TEST(HfConfig, LayersThatDifferAreReadFromTheirList) {
  const std::string gemma =
      R"({"model_type": "gemma2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300, "sliding_window": 8})";
  const auto read = [&](const std::string& types) {
    return read_hf_config(with(gemma, R"("layer_types": )" + types));
  };
  const std::string s = R"("sliding_attention")", f = R"("full_attention")";
  const auto list = [](std::initializer_list<std::string> words) {
    std::string text;
    for (const std::string& w : words) text += (text.empty() ? "[" : ", ") + w;
    return text + "]";
  };
  EXPECT_EQ(read_hf_config(gemma).model.full_attention_every, 2);
  EXPECT_EQ(read(list({s, f, s, f})).model.full_attention_every, 2);
  EXPECT_EQ(read(list({s, s, f, s})).model.full_attention_every, 3);
  const Model windows = read(list({s, s, s, s})).model, full = read(list({f, f, f, f})).model;
  EXPECT_EQ(std::pair(windows.sliding_window, windows.full_attention_every),
            std::pair(int64_t{8}, int64_t{0}));
  EXPECT_EQ(std::pair(full.sliding_window, full.full_attention_every), std::pair(int64_t{0}, int64_t{0}));
  const Model uneven = read(list({f, s, f, s})).model, pairs = read(list({s, f, f, s})).model;
  EXPECT_EQ(uneven.full_attention_layers, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(pairs.full_attention_layers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(pairs.full_attention_every, 0);
  EXPECT_TRUE(pairs.windowed(0) && !pairs.windowed(1) && !pairs.windowed(2) && pairs.windowed(3));
  for (const std::string& bad : {list({s, f}), list({s, f, s, R"("chunked_attention")"}), std::string("3")}) {
    ASSERT_EQ(read(bad).problems.size(), 1u) << bad;
    EXPECT_CONTAINS(read(bad).problems[0], "layer_types = ");
  }
  const std::string smol =
      R"({"model_type": "smollm3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300})";
  EXPECT_EQ(read_hf_config(with(smol, R"("no_rope_layers": [1, 0, 1, 0])")).model.no_rope_every, 2);
  EXPECT_EQ(read_hf_config(with(smol, R"("no_rope_layers": [1, 1, 1, 1])")).model.no_rope_every, 0);
  EXPECT_CONTAINS(problems_of_text(with(smol, R"("no_rope_layers": [0, 1, 1, 1])")), "no_rope_layers = ");
  EXPECT_CONTAINS(problems_of_text(with(smol, R"("use_sliding_window": true)")), "use_sliding_window = true");
}

// Windows from max_window_layers on, or as layer_types says; and what is written reads back.
TEST(HfConfig, WindowsOfQwenBeginAtALayer) {
  const std::string qwen =
      R"({"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300, "sliding_window": 8, "use_sliding_window": true})";
  const HfConfig c = read_hf_config(with(qwen, R"("max_window_layers": 3)"));
  ASSERT_TRUE(c.problems.empty()) << c.problems[0];
  EXPECT_EQ(c.model.full_attention_layers, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(c.model.sliding_window, 8);
  const HfConfig back = read_hf_config(hf_config_text(c.model, *c.family, "", "float32", 64));
  EXPECT_TRUE(back.problems.empty());
  EXPECT_TRUE(back.model == c.model);
  EXPECT_EQ(read_hf_config(with(qwen, R"("max_window_layers": 4)")).model.sliding_window, 0)
      << "no layer has one";
  EXPECT_EQ(read_hf_config(with(qwen, R"("max_window_layers": 0)")).model.full_attention_layers.size(), 0u);
}

TEST(HfConfig, LongropeHasTwoLists) {
  const std::string phi =
      R"({"model_type": "phi3", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
  "partial_rotary_factor": 0.5, "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5], "long_factor": [1.25, 40]}})";
  const HfConfig c = read_hf_config(phi);
  ASSERT_TRUE(c.problems.empty()) << c.problems[0];
  const RopeScaling& s = c.model.rope_scaling;
  EXPECT_EQ(s.kind, RopeScalingKind::Longrope);
  EXPECT_EQ(s.long_factors, (std::vector<double>{1.25, 40}));
  EXPECT_EQ(std::pair(s.factor, s.original_positions), std::pair(32.0, int64_t{4096}));
  EXPECT_NEAR(s.attention_factor, 1.1902380714238083, 1e-15);  // of Phi-3-mini-128k
  for (const std::string& original : {std::string(), phi}) {
    const HfConfig back = read_hf_config(hf_config_text(c.model, *c.family, original, "float32", 64));
    ASSERT_TRUE(back.problems.empty()) << back.problems[0];
    EXPECT_TRUE(back.model == c.model);
  }
  EXPECT_CONTAINS(
      problems_of_text(with(phi, R"("rope_parameters": {"type": "longrope", "short_factor": [1]})")),
      "lacks the list long_factor");
}

// Transformers takes one of two names for a value, which one depends on its version.
TEST(HfConfig, NamesThatContradictAreRefused) {
  EXPECT_CONTAINS(problems_of_text(with(kLlama, R"("rope_scaling": {"type": "linear", "factor": 2},
                                                   "rope_parameters": {"rope_type": "default"})")),
                  "rope_scaling = {\"type\":\"linear\",\"factor\":2} contradicts");
  const std::string mixtral =
      R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300, "num_local_experts": 4)";
  EXPECT_EQ(problems_of_text(mixtral + R"(, "num_experts": 4})"), "");
  EXPECT_CONTAINS(problems_of_text(mixtral + R"(, "num_experts": 8})"),
                  "num_experts = 8 contradicts 4, which means the same");
  EXPECT_CONTAINS(problems_of_text(mixtral + R"(, "rope_theta": 0})"), "rope_theta must be above 0, got 0");
  EXPECT_EQ(problems_of_text(mixtral + R"(, "rope_theta": 5e5, "rope_parameters": {"rope_theta": 5e5}})"),
            "");
  EXPECT_CONTAINS(
      problems_of_text(mixtral + R"(, "rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e4}})"),
      "rope_theta = 500000.0 contradicts 10000.0");
}

// Values that transformers takes at their word and that mean something else, or nothing, here.
TEST(HfConfig, DegenerateValuesAreRefused) {
  const std::string moe =
      R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32)";
  EXPECT_EQ(problems_of_text(moe + R"(, "mlp_only_layers": [0]})"), "");
  EXPECT_CONTAINS(problems_of_text(moe + R"(, "mlp_only_layers": "0"})"), "mlp_only_layers must be a list");
  const std::string mistral =
      R"({"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300)";
  EXPECT_EQ(problems_of_text(mistral + R"(, "sliding_window": null})"), "");
  EXPECT_CONTAINS(problems_of_text(mistral + R"(, "sliding_window": 0})"),
                  "sliding_window must be at least 1, or null");
  const std::string gemma =
      R"({"model_type": "gemma2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 96, "vocab_size": 300)";
  EXPECT_EQ(problems_of_text(gemma + R"(, "final_logit_softcapping": null})"), "");
  EXPECT_CONTAINS(problems_of_text(gemma + R"(, "final_logit_softcapping": 0})"),
                  "final_logit_softcapping must be above 0, or null");
  const std::string llama4 =
      R"({"model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "intermediate_size": 96, "intermediate_size_mlp": 96, "vocab_size": 300, "num_local_experts": 4)";
  EXPECT_EQ(problems_of_text(llama4 + R"(, "interleave_moe_layer_step": 2})"), "");
  EXPECT_CONTAINS(problems_of_text(llama4 + R"(, "moe_layers": [1, 3], "interleave_moe_layer_step": 0})"),
                  "interleave_moe_layer_step must be at least 1");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "dbrx", "ffn_config": 3})"),
                  "ffn_config must be an object, got 3");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "llama", })"), "is not valid JSON");
}

TEST(HfConfig, QuantisationThatIsNotReadIsRefused) {
  const auto problems = [](const std::string& quantised) {
    return problems_of_text(with(kLlama, "\"quantization_config\": " + quantised));
  };
  EXPECT_EQ(problems("null"), "");
  EXPECT_EQ(problems(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"), "");
  EXPECT_EQ(problems(R"({"quant_method": "fp8"})"), "");
  EXPECT_EQ(problems(R"({"quant_method": "mxfp4"})"), "");
  EXPECT_CONTAINS(problems(R"({"quant_method": "fp8", "weight_block_size": [64, 64]})"),
                  "\"fp8\" with weight_block_size [64,64] is not supported");
  EXPECT_CONTAINS(problems(R"({"quant_method": "awq", "bits": 4})"), "quant_method = \"awq\"");
  EXPECT_CONTAINS(problems("true"), "quant_method = null");
}

// Models with images: only the text part is read, and what is said of it twice must agree.
TEST(HfConfig, TheTextPartIsRead) {
  const std::string text =
                        R"("text_config": {"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300)",
                    head = R"({"model_type": "mistral3", "vision_config": {"model_type": "pixtral"}, )";
  const std::string config = head + text + "}}";
  const HfConfig c = read_hf_config(config);
  ASSERT_TRUE(c.problems.empty()) << c.problems[0];
  EXPECT_EQ(c.family->type, "mistral3");
  EXPECT_EQ(c.model.embed, 64);
  Model longer = c.model;
  longer.rope_theta = 5e5;
  const auto written = nlohmann::json::parse(hf_config_text(longer, *c.family, config, "bfloat16", 64));
  EXPECT_EQ(written.at("vision_config").at("model_type"), "pixtral");
  EXPECT_EQ(written.at("text_config").at("rope_parameters").at("rope_theta"), 5e5);
  EXPECT_EQ(written.at("text_config").at("hidden_size"), 64);
  EXPECT_TRUE(read_hf_config(written.dump()).model == longer);
  EXPECT_CONTAINS(problems_of_text(head + text + R"(, "sliding_windw": 3}})"),
                  "sliding_windw = 3 is not a key");
  EXPECT_CONTAINS(problems_of_text(with(config, R"("alien": 3)")), "alien = 3 is not a key");
  EXPECT_CONTAINS(problems_of_text(head + R"("x": 1})"), "lacks text_config");
  EXPECT_CONTAINS(problems_of_text(with(head + text + R"(, "tie_word_embeddings": true}})",
                                        R"("tie_word_embeddings": false)")),
                  "tie_word_embeddings = false contradicts text_config");
  EXPECT_CONTAINS(problems_of_text(R"({"model_type": "mistral3", "text_config": {"model_type": "llama"}})"),
                  "only \"mistral\"");
}

struct Written {
  TempFolder folder;
  explicit Written(const std::string& config) {
    base::make_directories(folder / "m");
    base::write_file_atomically(folder / "m/config.json", config);
    base::write_file_atomically(folder / "r.toml",
                                "[model]\nhf = \"m\"\n[data]\ntokenizer = \"bytes\"\nseq_len = "
                                "64\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n");
  }
  std::string refusal(const std::vector<std::string>& sets = {}) const {
    return test::user_error([&] { load((folder / "r.toml").string(), sets); });
  }
};

TEST(HfRecipe, TheFolderIsRelativeToTheRecipe) {
  const Written w(kLlama);
  const Recipe r = load((w.folder / "r.toml").string());
  EXPECT_EQ(r.model.layers, 2);
  EXPECT_EQ(base::Path(r.model.hf), w.folder / "m");
  // What is printed reads back, also when the folder is gone: the run is then complete without it.
  EXPECT_TRUE(parse(to_toml(r)) == r);
  base::remove_file(w.folder / "m/config.json");
  EXPECT_TRUE(parse(to_toml(r)) == r);
}

TEST(HfRecipe, ContradictionsAreRefused) {
  const Written w(kLlama);
  EXPECT_CONTAINS(w.refusal({"model.layers=3"}),
                  "3 contradicts config.json of the folder in model.hf, which says 2");
  EXPECT_CONTAINS(w.refusal({"model.preset='llama3-8b'"}), "contradicts model.hf");
  const Recipe r = load((w.folder / "r.toml").string(), {"model.layers=2", "model.rope_theta=1e6"});
  EXPECT_EQ(r.model.rope_theta, 1e6);
}

TEST(HfRecipe, ProblemsOfTheConfigComeAtOnce) {
  const Written w(with(kLlama, R"("mlp_bias": true, "alien": 1)"));
  const std::string why = w.refusal({"run.steps=0"});
  EXPECT_CONTAINS(why, "mlp_bias = true is not supported");
  EXPECT_CONTAINS(why, "alien = 1 is not a key");
  EXPECT_CONTAINS(why, "run.steps");
}

TEST(HfRecipe, ANameIsAnsweredWithTheDownload) {
  const std::string why = test::user_error([] {
    parse(
        "[model]\nhf = \"meta-llama/Llama-3.2-1B\"\n[data]\nseq_len = 64\n[optimizer]\nlr = "
        "1e-3\n[run]\nsteps = 1\n");
  });
  EXPECT_CONTAINS(why, "hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B");
}

TEST(HfRecipe, AnAdapterIsNoModel) {
  const Written w(kLlama);
  base::remove_file(w.folder / "m/config.json");
  base::write_file_atomically(w.folder / "m/adapter_config.json", "{}");
  EXPECT_CONTAINS(w.refusal(), "merge it into its base model");
}

// Every block has experts then, whose width is that of a slice; what is printed reads back.
TEST(HfRecipe, SlicesDivideTheFolder) {
  const Written w(kLlama);
  const std::vector<std::string> sets = {"model.moe.upcycle=true", "model.moe.experts=8",
                                         "model.moe.top_k=4"};
  const auto sliced = [&](int n) {
    std::vector<std::string> all = sets;
    all.push_back("model.moe.upcycle_slices=" + std::to_string(n));
    return all;
  };
  const int64_t ffn = load((w.folder / "r.toml").string()).model.ffn;
  ASSERT_EQ(ffn % 4, 0);
  const Recipe r = load((w.folder / "r.toml").string(), sliced(4));
  EXPECT_EQ(std::pair(r.model.moe.ffn, r.model.ffn), std::pair(ffn / 4, ffn / 4));
  EXPECT_TRUE(parse(to_toml(r)) == r);
  EXPECT_CONTAINS(w.refusal(sliced(3)), "8 must be a multiple of model.moe.upcycle_slices 3");
  ASSERT_NE(ffn % 5, 0);
  EXPECT_CONTAINS(w.refusal(sliced(5)), "5 does not divide the width");
  std::vector<std::string> single = sliced(4);
  single.push_back("model.moe.normalise=false");
  EXPECT_CONTAINS(w.refusal(single), "must be true with model.moe.upcycle_slices");
}

TEST(HfRecipe, ATokenizerIsRequired) {
  const Written w(kLlama);
  base::write_file_atomically(
      w.folder / "r.toml",
      "[model]\nhf = \"m\"\n[data]\nseq_len = 64\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n");
  EXPECT_CONTAINS(w.refusal(), "has neither tokenizer.json nor tokenizer.model");
}

}  // namespace
}  // namespace quintet::config
